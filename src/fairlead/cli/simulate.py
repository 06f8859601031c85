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
    applications: options.ApplicationsOption = None,
    services: options.ServicesOption = None,
    round_s: options.RoundOption = None,
    seed: options.SeedOption = 0,
    jobs: options.JobsOption = None,
    format: options.FormatOption = None,
    skip_bad_rows: options.SkipOption = False,
    no_wrap: options.NoWrapOption = False,
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
    read = options.read_trace(trace, format=format, skip_bad_rows=skip_bad_rows, wrap=not no_wrap, jobs=jobs)
    with progress_bar("simulating") as progress:
        result = api.simulate(
            read,
            cluster,
            policy,
            rent=rent,
            profiles=profiles,
            applications=applications,
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
            progress=progress,
        )
    options.say_notes([result], read)
    if json:
        print_json({**summary_of(result), "skipped_rows": read.skipped_rows})
    else:
        stdout_console().print(tables.one_run(result))
    report.write([result], [policy], ctx.obj)
    if save_history is not None:
        api.save_history(result, save_history)
