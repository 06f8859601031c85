"""`fairlead compare`: several policies on the same trace, in parallel processes."""

from __future__ import annotations

from typing import Annotated

import typer

from fairlead.cli import options
from fairlead.cli.console import print_json, progress_bar, stdout_console

# Every ordering: strict and filled queues, what preemption is worth without knowing durations (las) and with (srtf).
# Placings are not among them: until --locality or --variability says that it matters, where a job runs makes no odds.
DEFAULT_POLICIES = ("fifo", "fifo-easy", "fifo-greedy", "priority", "las", "srtf")


def compare(
    ctx: typer.Context,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            "--policy",
            help="A preset or stage=name pairs; once per policy. Without it, a handful of well-known ones.",
            rich_help_panel="What to run",
        ),
    ] = None,
    trace: options.TraceOption = None,
    cluster: options.ClusterOption = "16x4",
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
    workers: Annotated[
        int | None,
        typer.Option(
            "--workers",
            min=1,
            help="Processes. Default: one per policy, up to the cores.",
            rich_help_panel="What to run",
        ),
    ] = None,
    json: options.JsonOption = False,
    out: options.OutOption = None,
) -> None:
    """Replay a trace under several policies and put the results side by side."""
    from fairlead import api
    from fairlead.report import tables
    from fairlead.report.write import summary_of

    policies = policy or list(DEFAULT_POLICIES)
    report = options.Report.at(out)
    read = options.read_trace(
        trace, format=format, skip_bad_rows=skip_bad_rows, wrap=not no_wrap, jobs=jobs, throughputs=throughputs
    )
    with progress_bar(f"comparing {len(policies)} policies") as progress:
        results = api.compare(
            policies,
            read,
            cluster,
            workers=workers,
            progress=progress,
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
        )
    options.say_notes(results, read)
    named = dict(zip(policies, results, strict=True))
    if json:
        runs = [{"name": name, **summary_of(result)} for name, result in named.items()]
        print_json({"runs": runs, "skipped_rows": read.skipped_rows})
    else:
        console = stdout_console()
        console.print(tables.comparison(named, console))
        if split is not None:
            console.print(tables.by_part(named, split))
    report.write(results, policies, ctx.obj)
