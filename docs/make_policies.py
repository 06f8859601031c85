"""Make docs/policies.md from the docstrings of the built-in policies: `python docs/make_policies.py`."""

from __future__ import annotations

from pathlib import Path

from fairlead.policy import registry
from fairlead.policy.registry import Entry

PAGE = Path(__file__).parent / "policies.md"
STAGES = {
    "sizing": "How many GPUs each job gets.",
    "ordering": "Who is next.",
    "placing": "Which GPUs. Every placing is sticky or not: `packed-sticky`, `packed-nonsticky`.",
    "sharing": "Beside whom.",
    "powering": "Which nodes are on.",
}
_HEAD = """\
<!-- Made by docs/make_policies.py from the policies' docstrings; do not edit. -->

# Policies

A policy stack has one policy per stage. `fairlead policies` lists them and `fairlead policies NAME` shows one of these
pages, those of installed third parties included. How to name a stack: [the guide](guide.md#policies).
"""


def page() -> str:
    """The whole page, of the policies that Fairlead itself brings."""
    parts = [_HEAD]
    for stage, entries in registry.stages().items():
        default = registry.DEFAULTS[stage]
        parts.append(f"## {stage.capitalize()}\n\n{STAGES[stage]} The default is `{default}`.\n")
        parts.extend(_section(entry) for entry in entries if entry.name in registry.BUILT_IN[stage])
    rows = "".join(f"| `{name}` | `{spec}` |\n" for name, spec in registry.presets().items())
    parts.append(f"## Presets\n\n| preset | stands for |\n|---|---|\n{rows}")
    return "\n".join(parts)


def _section(entry: Entry) -> str:
    text = f"### {entry.name}\n\n{entry.doc}\n"
    if entry.options:
        rows = "".join(
            f"| `{name}` | {_default(default)} | {said} |\n" for name, (default, said) in entry.options.items()
        )
        text += f"\n| option | default | meaning |\n|---|---|---|\n{rows}"
    return text


def _default(value: object) -> str:
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, tuple):
        return f"`{'/'.join(map(str, value))}`" if value else "(see above)"
    return f"`{value}`"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(PAGE)
