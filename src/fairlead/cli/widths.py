"""`fairlead widths`: how many GPUs each type of job should get under a budget."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairlead.cli import options
from fairlead.cli.console import print_json, say, stdout_console
from fairlead.errors import InfeasibleError, InputError

if TYPE_CHECKING:
    from fairlead.policy.sizing.budget import Widths

_POINTS = 40


def widths(
    types: Annotated[Path, typer.Option("--types", metavar="FILE", help="Job types as TOML; see docs/guide.md.")],
    budget: Annotated[float, typer.Option("--budget", help="GPUs that may be rented on average.")],
    json: options.JsonOption = False,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Write widths.json, curve.csv and a plot of JCT against budget."),
    ] = None,
) -> None:
    """The widths that make the mean completion time smallest for a budget of rented GPUs."""
    from fairlead.model.files import read_text
    from fairlead.policy.sizing.budget import solve
    from fairlead.policy.sizing.type_tables import parse_types

    if not 0.0 < budget < float("inf"):
        raise InputError(f"--budget is {budget:g}; it must be a finite number above 0")
    if out is not None:
        from fairlead.report.write import prepare

        prepare(out)
    found = solve(parse_types(read_text(types), str(types), budget), budget)
    if json:
        print_json(_as_json(found, budget))
    else:
        console = stdout_console()
        console.print(_promise(found, budget))
        console.print(_table(found))
    if out is not None:
        _write(found, budget, types, out)


def _as_json(found: Widths, budget: float) -> dict[str, Any]:
    return {
        "budget_gpus": budget,
        "mean_jct_s": found.mean_jct_s(),
        "gpus_mean": found.gpus_mean,
        "gpus_std": found.gpus_std,
        "price": found.price,
        "types": [
            {
                "name": t.name,
                "width": found.width(i),
                "mean_jct_s": found.mean_jct_s(i),
                "parts": [{"width": p.width, "frac": p.frac} for p in found.parts[i]],
            }
            for i, t in enumerate(found.types)
        ],
    }


def _promise(found: Widths, budget: float) -> str:
    from fairlead.report.units import duration

    return (
        f"mean JCT {duration(found.mean_jct_s())}, {found.gpus_mean:.2f} GPUs rented on average of {budget:g},"
        f" standard deviation {found.gpus_std:.2f}"
    )


def _table(found: Widths) -> Any:
    from rich.table import Table

    from fairlead.report.units import duration

    table = Table(box=None, pad_edge=False)
    for name in ("type", "width", "mean JCT"):
        table.add_column(name, justify="left" if name == "type" else "right")
    for i, t in enumerate(found.types):
        shown = " or ".join(
            f"{p.width:g} ({100 * p.frac:.0f} %)" if p.frac < 1 else f"{p.width:.4g}" for p in found.parts[i]
        )
        table.add_row(t.name, shown, duration(found.mean_jct_s(i)))
    return table


def _write(found: Widths, budget: float, types: Path, out: Path) -> None:
    """The answer, and how it changes with the budget."""
    from fairlead.model.files import read_text
    from fairlead.policy.sizing.budget import solve
    from fairlead.policy.sizing.type_tables import parse_types
    from fairlead.report import as_json, plots

    curve, text = [], read_text(types)
    for step in range(_POINTS + 1):
        at = budget * 4.0 ** (2.0 * step / _POINTS - 1.0)
        try:
            curve.append((at, solve(parse_types(text, str(types), at), at).mean_jct_s()))
        except InfeasibleError:
            continue
    (out / "widths.json").write_text(as_json.dumps(_as_json(found, budget)) + "\n", encoding="utf-8")
    lines = ["budget_gpus,mean_jct_s", *(f"{b!r},{jct!r}" for b, jct in curve)]
    (out / "curve.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    if not plots.available():
        say("hint", plots.INSTALL_HINT)
        return

    def draw(axes: Any) -> None:
        axes.plot([b for b, _ in curve], [jct for _, jct in curve])
        axes.plot([budget], [found.mean_jct_s()], marker="o", label="this budget")
        axes.set(xlabel="GPUs rented on average", ylabel="mean completion time (s)", ylim=(0, None))
        axes.legend()

    (out / "curve.png").write_bytes(plots.save_drawing("What a budget buys", draw))
    say("wrote", str(out))
