"""Text of others on its way to a terminal: job names, commands, last words and logs hold whatever their users wrote.

A terminal obeys control characters, so that a job's output could set its title, repaint what was printed before or,
with bidirectional overrides, show one command and mean another. What does not stand for itself is shown, not obeyed.
"""

from __future__ import annotations

import re
import unicodedata

_UNSAFE = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Control, format (bidirectional, zero-width, tags), half characters, separators of lines and paragraphs."""
_REPLACEMENT = ord("\N{REPLACEMENT CHARACTER}")
_LINE_ENDS = re.compile("\r\n?")


class _Shown(dict[int, int]):
    """For `str.translate`: a control character becomes its picture (ESC is one cell wide), others a question mark."""

    def __missing__(self, code: int) -> int:
        if unicodedata.category(chr(code)) in _UNSAFE:
            self[code] = 0x2400 + code if code < 0x20 else 0x2421 if code == 0x7F else _REPLACEMENT
        else:
            self[code] = code
        return self[code]


_ALL = _Shown()
_WITHIN_LINES = _Shown({ord("\n"): ord("\n"), ord("\t"): ord("\t")})


def printable(text: str) -> str:
    """The text with every character visible that a terminal would obey."""
    return text if text.isprintable() else text.translate(_ALL)


def printable_lines(text: str) -> str:
    """The same, of text in lines. A carriage return ends one: it could paint over what stands there."""
    return text if text.isprintable() else _LINE_ENDS.sub("\n", text).translate(_WITHIN_LINES)
