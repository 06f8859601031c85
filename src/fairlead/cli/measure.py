"""`fairlead measure`: how slow each GPU is, and which applications feel it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairlead.cli import measure_gpu, options
from fairlead.cli.console import print_json, say, stdout_console
from fairlead.errors import InputError

if TYPE_CHECKING:
    from fairlead.measure import Classes, Counters
    from fairlead.model.cluster import Cluster
    from fairlead.model.variability import Variability

app = typer.Typer(no_args_is_help=True, help="Variability profiles of GPUs, and classes of applications.")
app.command("counters")(measure_gpu.counters)
app.command("colocation")(measure_gpu.colocation)
app.command("scaling")(measure_gpu.scaling)

_IMPORT, _INVENT, _HERE = "From measurements", "Invented", "On this machine"
_NAMES_SHOWN = 8


@app.command("variability")
def variability(
    imports: Annotated[
        list[Path] | None,
        typer.Option(
            "--import", metavar="FILE", help="A csv of measured runs; may be repeated.", rich_help_panel=_IMPORT
        ),
    ] = None,
    here: Annotated[
        bool, typer.Option("--here", help="Time kernels on this machine's GPUs; needs PyTorch.", rich_help_panel=_HERE)
    ] = False,
    repeats: Annotated[int, typer.Option("--repeats", min=3, help="Of each kernel suite.", rich_help_panel=_HERE)] = 20,
    synthetic: Annotated[
        str | None,
        typer.Option("--synthetic", metavar="SHAPE|FILE", help="Invent one for this cluster.", rich_help_panel=_INVENT),
    ] = None,
    describe: Annotated[
        Path | None, typer.Option("--describe", metavar="FILE", help="Say what is in a profile of --cluster.")
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            "--cluster",
            metavar="SHAPE|FILE",
            help="The cluster of the profile. With --import, by default the nodes that were measured.",
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="The profile: .json or .csv.")] = None,
    app_class: Annotated[
        list[str] | None,
        typer.Option(
            "--class",
            metavar="NAME=APP",
            help="The application that stands for a class. Default: A=resnet (or sgemm), B and C=bert, D=pagerank.",
            rich_help_panel=_IMPORT,
        ),
    ] = None,
    skip_bad_rows: Annotated[
        bool, typer.Option("--skip-bad-rows", help="Leave out bad rows and count them.", rich_help_panel=_IMPORT)
    ] = False,
    between: Annotated[float, typer.Option(help="Spread between nodes.", rich_help_panel=_INVENT)] = 0.05,
    within: Annotated[float, typer.Option(help="Spread within nodes.", rich_help_panel=_INVENT)] = 0.02,
    outliers: Annotated[float, typer.Option(help="Fraction of slow GPUs.", rich_help_panel=_INVENT)] = 0.01,
    outlier_factor: Annotated[float, typer.Option(help="How slow they are.", rich_help_panel=_INVENT)] = 2.0,
    classes: Annotated[str, typer.Option(help="Classes, by commas.", rich_help_panel=_INVENT)] = "A,B,C,D",
    sensitivity: Annotated[
        str, typer.Option(help="How much each class feels all this.", rich_help_panel=_INVENT)
    ] = "1,0.3,0.3,0.05",
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of everything random.", rich_help_panel=_INVENT)] = 0,
    json: options.JsonOption = False,
) -> None:
    """Make a variability profile from measurements, from this machine or from chance, or say what is in one."""
    from fairlead import measure
    from fairlead.model.files import load_cluster, load_variability

    given = [option for option, value in _modes(imports, synthetic, describe, here) if value]
    if len(given) != 1:
        found = " and ".join(given) or "none of them"
        raise InputError(f"expected one of --import, --here, --synthetic and --describe, found {found}")
    if describe is not None:
        if cluster is None:
            raise InputError("--describe needs the cluster of the profile", hint="for example --cluster 16x4")
        shape = load_cluster(cluster)
        about = measure.summarise(load_variability(describe, shape), shape)
        _show_profile({"path": describe, **about}, json)
        return
    if out is None:
        raise InputError(f"{given[0]} makes a profile", hint="say where to write it, with --out FILE.json")
    if synthetic is not None:
        if cluster is not None:
            raise InputError("--synthetic names the cluster already", hint="leave out --cluster")
        shape = load_cluster(synthetic)
        made = measure.synthetic_variability(
            shape,
            between=between,
            within=within,
            outliers=outliers,
            outlier_factor=outlier_factor,
            sensitivity=_sensitivities(classes, sensitivity),
            seed=seed,
        )
        about = measure.summarise(made, shape)
        _save(made, shape, out, dict.fromkeys(made.scores, f"synthetic, seed {seed}"))
        _show_profile({"path": out, **about}, json)
        return
    if here:
        imports, app_class = _measure_here(out, repeats, app_class)
    imported = measure.import_runs(
        imports or [],
        classes=_class_options(app_class or []),
        cluster=None if cluster is None else load_cluster(cluster),
        skip_bad_rows=skip_bad_rows,
    )
    for note in imported.notes:
        say("note", note)
    about = measure.summarise(
        imported.variability, imported.cluster, applications=imported.applications, runs=imported.runs
    )
    _save(imported.variability, imported.cluster, out, imported.applications)
    _show_profile({"path": out, **about, "skipped_rows": imported.skipped_rows, "notes": imported.notes}, json)


@app.command("classes")
def classes(
    table: Annotated[
        Path | None, typer.Argument(metavar="[TABLE]", help="A csv: application, dram_frac, fma_frac.")
    ] = None,
    k: Annotated[int | None, typer.Option("--k", help="How many classes. Default: the best silhouette.")] = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write the classes as JSON.")] = None,
    known: Annotated[
        Path | None, typer.Option("--classes", metavar="FILE", help="Classes that --out wrote, instead of TABLE.")
    ] = None,
    assign: Annotated[
        list[str] | None,
        typer.Option("--assign", metavar="NAME:dram=X:fma=Y|FILE", help="Which class a new application joins."),
    ] = None,
    json: options.JsonOption = False,
) -> None:
    """Find the classes of applications, from most to least sensitive to slow GPUs; say where a new one belongs."""
    from dataclasses import asdict

    from fairlead import measure

    if (table is None) == (known is None):
        raise InputError("expected either a TABLE of applications or --classes FILE")
    if table is not None:
        found = measure.cluster_applications(measure.read_counters(table), k)
    elif known is None or k is not None or out is not None:
        raise InputError("--k and --out go with a TABLE, not with --classes")
    else:
        found = measure.load_classes(known)
    if out is not None:
        measure.save_classes(found, out)
        say("wrote", f"{out} ({len(found.classes)} classes)")
    joined = [found.join(new) for new in _applications(assign or [])]
    for one in joined:
        if one.far:
            say(
                "note",
                f"{one.application} is {one.distance:.3g} from the centroid of class {one.app_class}, whose farthest "
                f"member is at {one.radius:.3g}: the class may not describe it",
            )
    if json:
        print_json({**found.as_json(), "assigned": [asdict(one) for one in joined]})
    else:
        _print_classes(found, joined)


def _modes(imports: object, synthetic: object, describe: object, here: object) -> tuple[tuple[str, object], ...]:
    return ("--import", imports), ("--here", here), ("--synthetic", synthetic), ("--describe", describe)


def _measure_here(out: Path, repeats: int, app_class: list[str] | None) -> tuple[list[Path], list[str]]:
    from fairlead.measure.on_gpu.variability import CLASSES, measure_here
    from fairlead.node.gpu.nvml import NvmlMeter

    runs = measure_here(NvmlMeter().gpus, out, repeats)
    say("wrote", f"{runs} (every repeat)")
    return [runs], app_class or [f"{name}={suite}" for name, suite in CLASSES.items()]


def _class_options(given: Sequence[str]) -> dict[str, str]:
    chosen: dict[str, str] = {}
    for text in given:
        name, equals, application = text.partition("=")
        if not equals or not application:
            raise InputError(f"--class {text}: expected NAME=APPLICATION", hint="for example --class A=resnet")
        if name in chosen:
            raise InputError(f"--class {name} was given twice, as {chosen[name]} and as {application}")
        chosen[name] = application
    return chosen


def _sensitivities(classes: str, sensitivity: str) -> dict[str, float]:
    names, values = classes.split(","), sensitivity.split(",")
    if len(names) != len(values) or len(set(names)) < len(names):
        raise InputError(f"--classes {classes} and --sensitivity {sensitivity}: expected one number for each class")
    try:
        return {name.strip(): float(value) for name, value in zip(names, values, strict=True)}
    except ValueError:
        raise InputError(f"--sensitivity {sensitivity}: expected numbers, by commas") from None


def _applications(given: Sequence[str]) -> list[Counters]:
    from fairlead.measure.counters import parse_counters, read_counters

    found: list[Counters] = []
    for text in given:
        found += read_counters(Path(text)) if text.endswith(".csv") or Path(text).is_file() else [parse_counters(text)]
    return found


def _save(made: Variability, cluster: Cluster, out: Path, about: Mapping[str, str]) -> None:
    from fairlead.model.files import save_variability

    save_variability(made, cluster, out, about=about)
    say("wrote", f"{out} ({cluster.gpus:,} GPUs, classes {', '.join(made.scores)})")


def _show_profile(about: Mapping[str, Any], json: bool) -> None:
    if json:
        print_json(about)
        return
    rows = []
    for name, one in about["classes"].items():
        slow = [f"{found['gpu']} ({found['score']:.3f})" for found in one["outliers"]]
        rows.append(
            [
                name,
                one["from"] or "–",
                f"{one['gpus']:,}",
                "–" if one["runs"] is None else f"{one['runs']:,}",
                *(_number(one[key]) for key in ("min", "median", "max")),
                "–" if one["between_nodes_frac"] is None else f"{one['between_nodes_frac']:.1%}",
                _some(slow),
                _some(one["unscored"]),
            ]
        )
    heads = ("class", "from", "GPUs", "runs", "min", "median", "max", "between nodes", "outliers", "without a score")
    _print_table(heads, rows)
    if about["correlations"]:
        pairs = [(pair, _number(value)) for pair, value in about["correlations"].items()]
        _print_table(("classes", "Spearman"), pairs)


def _print_classes(found: Classes, joined: Sequence[Any]) -> None:
    rows = [
        (c.name, f"{c.dram_frac:.3f}", f"{c.fma_frac:.3f}", f"{c.radius:.3f}", ", ".join(c.members))
        for c in found.classes
    ]
    _print_table(("class", "dram", "fma", "radius", "applications"), rows)
    if found.silhouettes:
        _print_table(("k", "silhouette"), [(str(k), f"{value:.3f}") for k, value in found.silhouettes.items()])
    if joined:
        new = [(j.application, j.app_class, f"{j.distance:.3f}", f"{j.radius:.3f}") for j in joined]
        _print_table(("application", "joins", "distance", "radius"), new)


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _some(names: Sequence[str]) -> str:
    """The first few names, and how many more there are; --json has all of them."""
    more = len(names) - _NAMES_SHOWN
    return ", ".join([*names[:_NAMES_SHOWN], *([f"and {more} more"] if more > 0 else [])]) or "none"


def _print_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for head in heads:
        table.add_column(head)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    stdout_console().print(table)
