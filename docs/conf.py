"""Sphinx: how the pages become a site. `make docs`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from pygments.lexers.special import TextLexer

from fairlead import __version__

project = "Fairlead"
author = "The Fairlead authors"
release = __version__
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
myst_heading_anchors = 4
html_theme = "furo"
html_title = f"Fairlead {release}"
html_show_sphinx = False
html_show_copyright = False
highlight_language = "text"

_HERE = Path(__file__).resolve().parent
html_search_scorer = str(_HERE / "search_scorer.js")
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(((?:\.\./)+[^)\s#]*)(#[^)\s]*)?\)")


def _without_links_out(app: Any, name: str, source: list[str]) -> None:
    """Links to files outside of the documentation work in a checkout; on the site they become the file's path."""
    page = _HERE / f"{name}.md"

    def named(link: re.Match[str]) -> str:
        target = (page.parent / link[2]).resolve()
        if target.is_relative_to(_HERE):
            return link[0]
        path = target.relative_to(_HERE.parent)
        return link[1] if link[1].strip("`") == str(path) else f"{link[1]} (`{path}`)"

    source[0] = _LINK.sub(named, source[0])


def setup(app: Any) -> dict[str, Any]:
    """Called by Sphinx."""
    app.add_lexer("csv", TextLexer)
    app.connect("source-read", _without_links_out)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
