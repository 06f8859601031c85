"""The fenced blocks of the documentation, and the marks that stand in HTML comments directly above them.

<!-- not run: REASON -->    a console or python block that the tests leave alone
<!-- exit: 2 -->            the last command of the block ends with that status; 0 unless marked
<!-- output -->             the lines shown must be in the output, in order; `...` stands for any lines
<!-- file: PATH -->         the block shows that file of the repository, whole
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs" / "papers").glob("*.md")),
]
_MARK = re.compile(r"<!-- (not run|exit|output|file)(?:: (.+?))? -->")


@dataclass(frozen=True)
class Block:
    """One fenced block."""

    document: Path
    line: int
    language: str
    text: str
    marks: dict[str, str]

    @property
    def where(self) -> str:
        """For messages: `docs/guide.md:12`."""
        return f"{self.document.relative_to(ROOT)}:{self.line}"

    @property
    def commands(self) -> list[tuple[str, list[str]]]:
        """Each command of a console block with the output shown below it."""
        found: list[tuple[str, list[str]]] = []
        lines = iter(self.text.splitlines())
        for line in lines:
            if line.startswith("$ "):
                command = line[2:]
                while command.endswith("\\"):
                    command = command[:-1] + next(lines).strip()
                found.append((command, []))
            elif found:
                found[-1][1].append(line)
            else:
                raise ValueError(f"{self.where}: a console block starts with a line `$ command`")
        return found


@cache
def blocks_of(document: Path) -> tuple[Block, ...]:
    """All fenced blocks of a file."""
    found = []
    lines = document.read_text(encoding="utf-8").splitlines()
    number = 0
    while number < len(lines):
        if lines[number].startswith("```"):
            end = lines.index("```", number + 1)
            text = "\n".join(lines[number + 1 : end]) + "\n"
            found.append(Block(document, number + 1, lines[number][3:].strip(), text, _marks_above(lines, number)))
            number = end
        number += 1
    return tuple(found)


def _marks_above(lines: list[str], fence: int) -> dict[str, str]:
    marks: dict[str, str] = {}
    number = fence - 1
    while number >= 0 and (match := _MARK.fullmatch(lines[number].strip())):
        marks[match[1]] = match[2] or ""
        number -= 1
    return marks


def shown_in(shown: list[str], output: str) -> str | None:
    """None where the lines shown are in the output, in order, blanks aside; else the first that is not."""
    left = iter([" ".join(line.split()) for line in output.splitlines()])
    for line in shown:
        wanted = " ".join(line.split())
        if wanted not in ("", "...") and wanted not in left:
            return line
    return None
