"""Links resolve, and what is said of policies and results is what there is."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import fairlead
from fairlead.traces import Trace
from fairlead.traces.formats import FORMATS
from fairlead.traces.synthetic import GENERATORS
from fairlead.traces.trace import SCHEMA
from tests.conftest import make_trace
from tests.docs.blocks import ROOT

PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "bench").glob("*.md")]
_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def test_links_between_pages_resolve() -> None:
    broken = [
        f"{page.relative_to(ROOT)}: {target}" for page in PAGES for target in links(page) if not good(page, target)
    ]
    assert broken == []


def links(page: Path) -> list[str]:
    return _LINK.findall(_FENCED.sub("", page.read_text(encoding="utf-8")))


def good(page: Path, target: str) -> bool:
    if re.match(r"[a-z]+:", target):
        return True
    path, _, anchor = target.partition("#")
    found = page.parent / path if path else page
    return found.exists() and (not anchor or anchor in anchors(found))


def anchors(page: Path) -> set[str]:
    """The headings of a page as links name them."""
    headings = re.findall(r"^#+ (.+)$", _FENCED.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_page_of_policies_is_current() -> None:
    made = script("make_policies").page()
    kept = (ROOT / "docs" / "policies.md").read_text(encoding="utf-8")
    assert kept == made, "docs/policies.md is out of date; make it anew: .venv/bin/python docs/make_policies.py"


def test_the_reference_is_current() -> None:
    for name, made in script("make_reference").pages().items():
        kept = (ROOT / "docs" / "reference" / name).read_text(encoding="utf-8")
        assert kept == made, f"docs/reference/{name} is out of date; run .venv/bin/python docs/make_reference.py"


def test_every_page_says_first_whom_it_is_for() -> None:
    silent = []
    for page in [*(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "papers").glob("*.md")]:
        text = re.sub(r"<!--.*?-->", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        first = next(part for part in text.split("\n\n") if part.strip() and not part.lstrip().startswith("#"))
        if not re.search(
            r"\b[Ff]or (you|everyone|users|operators|researchers|policy authors|those|whoever|all)\b", first
        ):
            silent.append(page.name)
    assert silent == []


def test_every_page_is_in_the_contents_of_the_site() -> None:
    contents = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    listed = {*re.findall(r"^([\w/-]+)$", contents, re.MULTILINE), "index"}
    docs = ROOT / "docs"
    pages = {str(page.relative_to(docs).with_suffix("")) for page in docs.rglob("*.md")}
    assert {page for page in pages if not page.startswith("decisions/")} == listed


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_figure_and_column_of_a_result_is_explained() -> None:
    trace: Trace = make_trace([(0, 1, 10), (0, 2, 20)])
    result = fairlead.simulate(trace, "1x2", carbon=400)
    page = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    summary, jobs, timeline = (section(page, title) for title in ("The summary", "Jobs", "Timeline"))
    around = ["policy", "cluster", "trace", "notes", "skipped_rows"]
    assert sorted(summary) == sorted([*around, *result.summary])
    assert jobs == result.jobs.columns
    assert timeline == result.timeline.columns


def test_every_figure_of_services_is_explained() -> None:
    plain = fairlead.simulate(make_trace([(0, 1, 10)]), "1x1")
    served = fairlead.simulate("synthetic:fleet:services=2:hours=0.2", "1x2:T4")
    page = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \|", page.split("\n### With services\n")[1].split("\n## ")[0], re.MULTILINE)
    assert set(rows) >= set(served.summary) - set(plain.summary)
    assert served.fleet is not None
    assert all(f"`{name}`" in page for name in served.fleet.columns)


def test_every_column_format_and_generator_of_traces_is_explained() -> None:
    page = (ROOT / "docs" / "traces.md").read_text(encoding="utf-8")
    assert section(page, "Fairlead's own format") == list(SCHEMA)
    assert section(page, "Public formats") == [known.name for known in FORMATS if known.name != "fairlead"]
    assert section(page, "Synthetic traces") == list(GENERATORS)


def section(page: str, title: str) -> list[str]:
    """The names in the first column of the tables of one section."""
    body = re.split(r"^##+ ", page.split(f"\n## {title}\n")[1], flags=re.MULTILINE)[0]
    return re.findall(r"^\| `([^`]+)` \|", body, re.MULTILINE)


def test_the_pictures_of_the_readme_are_small() -> None:
    shown = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert len(shown) == 2
    assert all((ROOT / path).stat().st_size < 400_000 for path in shown)


def test_every_line_on_what_sharing_isolates_names_tests_that_exist() -> None:
    page = (ROOT / "docs" / "operators.md").read_text(encoding="utf-8")
    section = page.partition("### What sharing isolates, and what it does not\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")][1:]
    assert len(lines) > 10
    for line in lines:
        shown_by = line.split("|")[-2].strip()
        named = re.findall(r"`(tests/[^`]+)`", shown_by)
        assert named or shown_by.startswith("not tested"), line
        for path, _, name in (one.partition("::") for one in named):
            assert (ROOT / path).is_file(), path
            assert not name or f"def {name}(" in (ROOT / path).read_text(encoding="utf-8"), f"{path}::{name}"
