"""`fairlead simulate`: one policy on one trace."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fairlead.cli import options
from fairlead.cli.console import print_json, progress_bar, stdout_console


def simulate(
    ctx: typer.Context,
    trace: options.TraceOption = None,
    cluster: options.ClusterOption = "16x4",
    policy: Annotated[
        str,
        typer.Option(
            "--policy",
            help="A preset, or stage=name pairs: ordering=las:queues=2,placing=packed-sticky. See `fairlead policies`.",
            rich_help_panel="What to run",
        ),
    ] = "fifo",
    rent: options.RentOption = None,
    profiles: options.ProfilesOption = None,
    training: options.TrainingOption = None,
    services: options.ServicesOption = None,
    round_s: options.RoundOption = None,
    seed: options.SeedOption = 0,
    jobs: options.JobsOption = None,
    format: options.FormatOption = None,
    skip_bad_rows: options.SkipOption = False,
    no_wrap: options.NoWrapOption = False,
    throughputs: options.ThroughputsOption = None,
    drop_too_wide: options.DropOption = False,
    split: options.SplitOption = None,
    variability: options.VariabilityOption = None,
    true_variability: options.TrueVariabilityOption = None,
    slow: options.SlowOption = None,
    correct_scores: options.CorrectOption = None,
    drain: options.DrainOption = None,
    locality: options.LocalityOption = None,
    interference: options.InterferenceOption = None,
    history: options.HistoryOption = None,
    carbon: options.CarbonOption = None,
    restart_s: options.RestartOption = None,
    mtbf_h: options.MtbfOption = None,
    repair_h: options.RepairOption = None,
    save_history: Annotated[
        Path | None,
        typer.Option(
            "--save-history",
            metavar="FILE",
            help="Write what the sharing policy has learnt; `fairlead history show FILE` prints it.",
            rich_help_panel="Results",
        ),
    ] = None,
    json: options.JsonOption = False,
    out: options.OutOption = None,
) -> None:
    """Replay a trace on a cluster under one policy."""
    from fairlead import api
    from fairlead.report import tables
    from fairlead.report.write import summary_of

    report = options.Report.at(out)
    read = options.read_trace(
        trace, format=format, skip_bad_rows=skip_bad_rows, wrap=not no_wrap, jobs=jobs, throughputs=throughputs
    )
    with progress_bar("simulating") as progress:
        result = api.simulate(
            read,
            cluster,
            policy,
            rent=rent,
            profiles=profiles,
            training=training,
            services=services,
            round_s=round_s,
            variability=variability,
            true_variability=true_variability,
            slow=slow or (),
            correct_scores=correct_scores,
            drain=drain or (),
            locality=options.parse_locality(locality),
            interference=interference,
            history=history,
            carbon=carbon,
            seed=seed,
            restart_s=restart_s,
            mtbf_h=mtbf_h,
            repair_h=repair_h,
            drop_too_wide=drop_too_wide,
            split=split,
            record=out is not None,
            progress=progress,
        )
    if save_history is not None:
        api.save_history(result, save_history)
    options.say_notes([result], read)
    if json:
        print_json({**summary_of(result), "skipped_rows": read.skipped_rows})
    else:
        console = stdout_console()
        console.print(tables.one_run(result))
        if result.parts:
            console.print(tables.comparison(result.parts, console, of=split or "part"))
    report.write([result], [policy], ctx.obj)
