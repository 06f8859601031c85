"""`fairlead predictor`: what a service and an offline job leave each other, learnt from measured pairs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairlead.cli import options
from fairlead.cli.console import print_json, say, stdout_console
from fairlead.errors import InputError

if TYPE_CHECKING:
    from fairlead.measure.pair_table import Pairs
    from fairlead.measure.predictor import Evaluation

app = typer.Typer(no_args_is_help=True, help="Predict what a service and an offline job leave each other on a GPU.")

PairsOption = Annotated[
    Path | None,
    typer.Option("--pairs", metavar="FILE", help="Measured pairs: .csv, .parquet, or Gavel's throughputs as .json."),
]
SyntheticOption = Annotated[
    int | None, typer.Option("--synthetic", metavar="N", min=20, max=1_000_000, help="Invent N pairs instead.")
]
GpuModelOption = Annotated[
    str | None, typer.Option("--gpu-model", help="Which pairs, where the file has several GPU models.")
]
SeedOption = Annotated[int, typer.Option("--seed", min=0, help="Seed of everything random.")]


@app.command("train")
def train(
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The predictor, as .json.")],
    pairs: PairsOption = None,
    synthetic: SyntheticOption = None,
    gpu_model: GpuModelOption = None,
    method: Annotated[
        str, typer.Option("--method", help="best, mean, linear, k-nn, trees or mlp. Best: the least held-out error.")
    ] = "best",
    seed: SeedOption = 0,
    json: options.JsonOption = False,
) -> None:
    """Train a predictor for one GPU model; without --method the best of all on held-out pairs is kept."""
    from fairlead.errors import did_you_mean
    from fairlead.measure import predictor as measure
    from fairlead.model.predictor import save_predictor

    if method != "best" and method not in measure.METHODS:
        raise InputError(f"--method {method}: no such method", hint=did_you_mean(method, ("best", *measure.METHODS)))
    if out.suffix.lower() != ".json" or not out.parent.is_dir() or out.is_dir():
        raise InputError(f"--out {out}: expected a file that ends in .json, in a folder that exists")
    table = _table(pairs, synthetic, seed).of(gpu_model)
    found = measure.evaluate(table, measure.METHODS if method == "best" else (method,), seed=seed)
    chosen = measure.best_method(found) if method == "best" else method
    made = measure.train(table, chosen, seed=seed)
    save_predictor(made, out)
    say("wrote", f"{out} ({chosen}, {made.gpu_model}, from {len(table):,} pairs)")
    _show({"path": out, "method": chosen, **_about(table)}, found, json)


@app.command("evaluate")
def evaluate(
    pairs: PairsOption = None,
    synthetic: SyntheticOption = None,
    gpu_model: GpuModelOption = None,
    predictor: Annotated[
        Path | None,
        typer.Option("--predictor", metavar="FILE", help="A trained one, on all of the pairs. Else every method."),
    ] = None,
    seed: SeedOption = 0,
    json: options.JsonOption = False,
) -> None:
    """Errors and rank correlation: of every method on held-out pairs and applications, or of a trained predictor."""
    from fairlead.measure import predictor as measure

    table = _table(pairs, synthetic, seed)
    if predictor is None:
        table = table.of(gpu_model)
        _show(_about(table), measure.evaluate(table, seed=seed), json)
        return
    from fairlead.model.predictor import load_predictor

    trained = load_predictor(predictor)
    table = table.of(gpu_model or (trained.gpu_model if len(table.gpu_models) > 1 else None))
    if trained.gpu_model.lower() != table.gpu_models[0].lower():
        say("note", f"{predictor} was trained for {trained.gpu_model}, the pairs are of {table.gpu_models[0]}")
    say("note", "nothing is held out: the figures are honest only for pairs that it was not trained on")
    _show({**_about(table), "predictor": predictor}, [measure.evaluate_trained(trained, table)], json)


def _table(pairs: Path | None, synthetic: int | None, seed: int) -> Pairs:
    from fairlead.measure.pair_table import read_pairs
    from fairlead.measure.synthetic_pairs import synthetic_pairs

    if pairs is not None and synthetic is None:
        return read_pairs(pairs)
    if synthetic is not None and pairs is None:
        return synthetic_pairs(seed, synthetic)
    raise InputError("expected either --pairs FILE or --synthetic N")


def _about(table: Pairs) -> dict[str, Any]:
    return {
        "gpu_model": table.gpu_models[0],
        "pairs": len(table),
        "features": {"service": sorted(table.service), "offline": sorted(table.offline)},
    }


def _show(about: dict[str, Any], found: Sequence[Evaluation], json: bool) -> None:
    if json:
        from fairlead.measure.predictor import as_json

        print_json({**about, "evaluations": [as_json(one) for one in found]})
        return
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    heads = ("method", "held out", "pairs", "throughput MAE", "RMSE", "R2", "Spearman")
    for head in (*heads, "slowdown MAE", "RMSE", "R2", "Spearman", "matching unseen", "matching in use"):
        table.add_column(head, justify="left" if head in heads[:2] else "right")
    for one in found:
        scores = [f"{x:.3f}" for s in (one.throughput, one.slowdown) for x in (s.mae, s.rmse, s.r2, s.spearman)]
        reached = ["–" if x is None else f"{x:.1%}" for x in (one.matching_frac, one.matching_trained_frac)]
        table.add_row(one.method, one.held_out, f"{one.pairs:,}", *scores, *reached)
    stdout_console().print(table)
