"""A document in one file: style, scripts and data are inside it, and its policy lets it ask nobody for anything."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from html import escape
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from fairlead.report.as_json import plain
from fairlead.web import files

_STYLES = ("css/base.css", "vendor/uplot/uPlot.min.css", "css/report.css")
_LIBRARY = "vendor/uplot/uPlot.iife.min.js"
_MODULES = ("js/dom.js", "js/format.js", "js/report/lines.js", "js/report/timeline.js", "js/report/main.js")
"""Each after those that it imports from."""


def document(title: str, lead: str, body: str, data: Mapping[str, Any]) -> str:
    """The whole of it; `lead` and `body` are HTML, `data` is what the script draws."""
    style = "\n".join(files.text(name) for name in _STYLES)
    scripts = (files.text(_LIBRARY), _script())
    policy = (
        f"default-src 'none'; img-src data:; style-src {_hash(style)}; script-src {' '.join(map(_hash, scripts))};"
        " base-uri 'none'; form-action 'none'"
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)} · Fairlead</title>\n<style>{style}</style>\n</head>\n<body>\n<main>\n"
        f'<header><p class="brand">Fairlead</p><h1>{escape(title)}</h1><p class="lead">{lead}</p></header>\n{body}\n'
        f"<footer>Made by Fairlead {escape(_version())}</footer>\n</main>\n"
        f'<script type="application/json" id="data">{_json(data)}</script>\n'
        + "".join(f"<script>{script}</script>\n" for script in scripts)
        + "</body>\n</html>\n"
    )


def _script() -> str:
    """Our modules one after the other: without a network there is nowhere to import from."""
    parts = []
    for name in _MODULES:
        text = re.sub(r"^import\b[^;]*;\n", "", files.text(name), flags=re.MULTILINE)
        parts.append(re.sub(r"^export ", "", text, flags=re.MULTILINE))
    return '(() => {\n"use strict";\n' + "\n".join(parts) + "\n})();"


def _json(data: Mapping[str, Any]) -> str:
    """That no text in it can end the element that it stands in."""
    text = json.dumps(plain(data), separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _version() -> str:
    try:
        return version("fairlead")
    except PackageNotFoundError:
        return ""
