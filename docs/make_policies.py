"""Make docs/policies.md from the docstrings of the built-in policies: `python docs/make_policies.py`."""

from __future__ import annotations

from pathlib import Path

from fairlead.errors import InputError
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

For everyone who chooses a policy, and for researchers who need to know exactly what it does. A policy stack has one
policy per stage. `fairlead policies` lists them, and `fairlead policies NAME` shows one of these pages, also for
policies that you installed. How to name a stack: [the simulator](guide.md#policies).
"""


def page() -> str:
    """The whole page, of the policies that Fairlead itself brings."""
    parts = [_HEAD]
    for stage, entries in registry.stages().items():
        default = registry.DEFAULTS[stage]
        parts.append(f"## {stage.capitalize()}\n\n{STAGES[stage]} The default is `{default}`.\n")
        parts.extend(_section(entry) for entry in entries if entry.name in registry.BUILT_IN[stage])
    parts.append(_together())
    rows = "".join(f"| `{name}` | `{spec}` |\n" for name, spec in registry.presets().items())
    parts.append(f"## Presets\n\n| preset | stands for |\n|---|---|\n{rows}")
    return "\n".join(parts)


def _together() -> str:
    """How many stacks of one policy per stage are refused at default options, and why."""
    stacks, refused = registry.every_stack(), list[str]()
    for stack in stacks:
        try:
            registry.build(stack)
        except InputError as error:
            refused.append(f"| `{stack}` | {error.message} |\n")
    listed = "| stack | why not |\n|---|---|\n" + "".join(refused) if refused else "None of them is refused.\n"
    text = f"Every policy of one stage goes with every policy of the others: {len(stacks):,} stacks at default options."
    return f"## What goes together\n\n{text} {listed}"


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
