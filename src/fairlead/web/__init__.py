"""The page's own files: HTML, CSS and JavaScript, with one vendored charting library. Reports use the same style.

Nothing is built: what stands in `static` is what a browser gets. docs/decisions/0021-the-page.md says why.
"""
