"""Make docs/reference/ from the code: commands, configuration, HTTP routes. `python docs/make_reference.py`."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import typer

from fairlead.cli.main import app
from fairlead.live.api.app import bare_app, document
from fairlead.live.config import _TABLES, SETTINGS
from fairlead.policy.guarding import config as guard

FOLDER = Path(__file__).parent / "reference"
_MADE = "<!-- Made by docs/make_reference.py from the code; do not edit. -->\n\n"
_METHODS = ("get", "post", "put", "patch", "delete")


def pages() -> dict[str, str]:
    """Each page of the folder by its name."""
    return {"cli.md": cli(), "configuration.md": configuration(), "api.md": api()}


# ---- commands ----


def cli() -> str:
    """A section for each command."""
    root = typer.main.get_command(app)
    text = (
        "# Command line\n\nFor everyone who types `fairlead`. Every command here, with its arguments and options; "
        "`fairlead COMMAND --help` says the same. Every command that prints a result has `--json`. A command exits "
        "with 0 when it is done, 1 when it failed, 2 when you asked for something that cannot be, and 3 when no "
        "answer exists.\n"
    )
    return _MADE + text + "".join(_command(path, command) for path, command in _commands(root, ()))


def _commands(command: click.Command, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    inside = getattr(command, "commands", None)
    if inside is None:
        yield path, command
        return
    if path and getattr(command, "invoke_without_command", False):
        yield path, command
    for name, one in inside.items():
        yield from _commands(one, (*path, name))


def _command(path: tuple[str, ...], command: click.Command) -> str:
    words = [f"fairlead {' '.join(path)}", "[OPTIONS]" if any(_is_option(p) for p in command.params) else ""]
    words += [_argument(p) for p in command.params if not _is_option(p)]
    about = textwrap.dedent(command.help or "").strip()
    rows = [_row(p) for p in command.params]
    table = "\n| argument or option | meaning |\n|---|---|\n" + "".join(rows) if rows else ""
    return f"\n## fairlead {' '.join(path)}\n\n{about}\n\n```text\n{' '.join(filter(None, words))}\n```\n{table}"


def _is_option(parameter: click.Parameter) -> bool:
    return parameter.param_type_name == "option"


def _argument(parameter: click.Parameter) -> str:
    shown = parameter.metavar or (parameter.name or "").upper()
    return shown if parameter.required or shown.startswith("[") else f"[{shown}]"


def _row(parameter: Any) -> str:
    names = ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))
    if not _is_option(parameter):
        names = f"`{_argument(parameter)}`"
    elif parameter.metavar:
        names += f" `{parameter.metavar}`"
    return f"| {_cell(names)} | {_cell(getattr(parameter, 'help', None) or '')} |\n"


# ---- configuration ----


def configuration() -> str:
    """A table for each section of the file."""
    text = (
        "# Configuration\n\nFor operators. Write what you want to change into `fairlead.toml` in the controller's "
        "folder, or into the file that `--config` or `FAIRLEAD_CONFIG` names:\n\n"
        '```toml\n[policy]\nstack = "eaco"\n\n[server]\nport = 7317\n```\n\n'
        "An environment variable overrides the file: `server.port` is `FAIRLEAD_SERVER_PORT`. An option of "
        "`fairlead up` overrides both. `fairlead config show` prints every value and where it comes from.\n"
    )
    about = {
        f"{table}.{name}": f.description or "" for table, m in _TABLES.items() for name, f in m.model_fields.items()
    }
    about |= dict(_guard_words(guard.GuardConfig, "guard"))
    found: dict[str, list[str]] = {}
    for name, setting in SETTINGS.items():
        row = f"| `{name}` | {_value(setting.default)} | {_cell(about.get(name, ''))} |\n"
        found.setdefault(name.rpartition(".")[0], []).append(row)
    parts = [
        f"\n## {name}\n\n| setting | default | meaning |\n|---|---|---|\n{''.join(rows)}"
        for name, rows in found.items()
    ]
    return _MADE + text + "".join(parts)


def _guard_words(kind: type, at: str) -> Iterator[tuple[str, str]]:
    """The words below each field in the source."""
    body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    assert isinstance(body, ast.ClassDef)
    for field, word in zip(body.body, body.body[1:], strict=False):
        if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
            continue
        default = getattr(kind(), field.target.id)
        if hasattr(default, "__dataclass_fields__"):
            yield from _guard_words(type(default), f"{at}.{field.target.id}")
        elif isinstance(word, ast.Expr) and isinstance(word.value, ast.Constant):
            yield f"{at}.{field.target.id}", str(word.value.value)


def _value(value: object) -> str:
    if value is None:
        return "none"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


# ---- HTTP ----


def api() -> str:
    """A row for each route."""
    found = document(bare_app())
    text = (
        "# HTTP API\n\nFor those who talk to the controller from a program. Send your token with every request:\n\n"
        '```text\ncurl -H "Authorization: Bearer $FAIRLEAD_TOKEN" $FAIRLEAD_URL/v1/jobs\n```\n\n'
        "Requests and answers are JSON. `GET /v1/openapi.json` describes every field. An error is an object with "
        "`error` and, where there is one, `hint`. Send an `Idempotency-Key` with a submission, and you can repeat it "
        "without making a second job.\n\n| route | what it does |\n|---|---|\n"
    )
    rows = []
    for path, operations in sorted(found["paths"].items()):
        for method in _METHODS:
            if method in operations:
                said = operations[method].get("description", "").split("\n\n")[0]
                rows.append(f"| `{method.upper()} {path}` | {_cell(said)} |\n")
    return _MADE + text + "".join(rows)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, text in pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
        print(FOLDER / name)
