"""Play `fairlead demo` and draw what it shows in a terminal: `python docs/make_demo_picture.py`."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from io import StringIO
from pathlib import Path
from typing import Any

from rich.console import Console

from fairlead.cli.demo_costs import Costs, span_s
from fairlead.cli.demo_picture import cost_table, picture, story_line

PICTURE = Path(__file__).parent / "images" / "demo.svg"
_WIDTH = 120
_FIRST, _LAST = 1, 40
"""The link to the page is left out: it works once, and not for you."""


def drawn(demo: dict[str, Any]) -> str:
    """An SVG of the terminal."""
    console = Console(
        highlight=False, record=True, width=_WIDTH, file=StringIO(), force_terminal=True, color_system="truecolor"
    )
    for told in demo["story"][_FIRST:_LAST]:
        console.print(story_line(told))
    console.print("\nWho ran where (letters that alternate share a GPU, dots are GPUs without a job):\n")
    console.print(picture(demo["jobs"], span_s(demo["jobs"])[1], _WIDTH))
    console.print()
    alone = {name: value for name, value in demo["without_sharing"].items() if name != "is_simulated"}
    console.print(cost_table(Costs(**demo["as_it_ran"]), Costs(**alone)))
    # Without the fonts that it would load from the network.
    return re.sub(
        r"@font-face \{.*?\}", "", console.export_svg(title="fairlead demo", unique_id="demo"), flags=re.DOTALL
    )


if __name__ == "__main__":
    program = "from fairlead.cli.main import run; run()"
    done = subprocess.run([sys.executable, "-c", program, "demo", "--json"], stdout=subprocess.PIPE, check=True)
    PICTURE.write_text(drawn(json.loads(done.stdout)), encoding="utf-8")
    print(PICTURE)
