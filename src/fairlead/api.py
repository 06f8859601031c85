"""Fairlead from Python: `simulate` one policy, `compare` several in parallel, `submit` a job to a live cluster.

They take what the command line takes, and raise `InputError` where that would exit with status 2.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, TypedDict, Unpack

from fairlead import traces
from fairlead.errors import InputError, did_you_mean
from fairlead.measure.training_files import load_training
from fairlead.model.cluster import Cluster, Rental, parse_rental
from fairlead.model.files import load_cluster, load_variability, read_text
from fairlead.model.interference import BUILT_IN, Interference, built_in, load_interference, save_interference
from fairlead.model.part_clusters import clusters_of_parts
from fairlead.model.profile import Locality, Profile
from fairlead.model.profile_json import load_profiles
from fairlead.model.service_files import load_services
from fairlead.model.training import Training
from fairlead.policy import registry
from fairlead.sim.carbon import parse_carbon
from fairlead.sim.failures import Failures
from fairlead.sim.feasible import without_too_wide
from fairlead.sim.parallel import run_all
from fairlead.sim.parts import together
from fairlead.sim.result import Result
from fairlead.sim.run import Progress, Run
from fairlead.sim.truth import WATCHES, Watch, parse_drift
from fairlead.sim.world import World
from fairlead.traces import Trace
from fairlead.traces.services import join_services

DEFAULT_CLUSTER = "16x4"
DEFAULT_INTERFERENCE = "eaco"
_SHOWN = 5


class Options(TypedDict, total=False):
    """What `simulate` and `compare` take besides trace, cluster and policy; all may be left out."""

    round_s: float | None
    """Decide only every so many seconds; without it, at every event."""
    seed: int
    """Of all that is random."""
    rent: str | Rental | None
    """The cluster's nodes are rented on these terms: `default`, or some of `boot=120,minimum=60,step=1` in seconds."""
    profiles: str | Path | None
    """A TOML file of profiles, as `measure colocation` writes one."""
    training: str | Path | Mapping[str, Training] | None
    """How jobs of each profile train, epoch by epoch: a folder in the layout of Pollux's measurements, or a csv."""
    services: str | Path | None
    """A TOML file of services that are on the cluster from the start, one GPU each."""
    variability: str | Path | None
    """A file of GPU scores: what policies believe, and what is true unless said otherwise."""
    true_variability: str | Path | None
    """A file of GPU scores that are true, whatever is believed."""
    slow: Sequence[str]
    """GPUs that grow slow: `GPU:FACTOR@SECONDS`, for example `35:2.0@86400`."""
    correct_scores: Watch | None
    """Correct what is believed of GPUs from observed iteration times: the `job`'s, or each `rank`'s own."""
    drain: Sequence[str]
    """GPUs that take no jobs, by number or as NODE:INDEX."""
    locality: Locality | None
    """Slowdown of jobs that span nodes, one for all or one per class; overrides the jobs' profiles."""
    restart_s: float | None
    """The cost of each preemption or move; overrides the jobs' profiles."""
    mtbf_h: float | None
    """Let every node fail, that long between failures on average."""
    repair_h: float | None
    """How long a failed node is away on average; 1 h unless given."""
    interference: str | Path | None
    """What is true of jobs that share GPUs: eaco (unless given), gavel-v100, none, or a file."""
    history: str | Path | None
    """What the sharing policy knows of that at the start, likewise; overrides the policy's own option."""
    carbon: str | float | None
    """Grams of CO2 per kWh, or a csv by the hour; adds carbon_kg to the results."""
    skip_bad_rows: bool
    """Leave out bad rows of the trace."""
    wrap: bool
    """Whether a trace that wraps (Sia-Philly) goes on arriving until its measured jobs are done; on unless given."""
    throughputs: str | Path | None
    """The table of step rates that belongs to a Gavel trace: `FILE` or `FILE:GPU`."""
    drop_too_wide: bool
    """Leave out jobs that can never fit on the cluster, under any of the policies."""
    record: bool
    """Keep who was on which GPU when: `Result.occupancy`; the HTML report draws it."""
    split: str | None
    """Run a cluster for each value of a column (vc, user, group, profile, kind): `Result.parts`, and all together. The
    cluster is then the same for each, or a csv file with a row per part."""


def simulate(
    trace: str | Path | Trace | None = None,
    cluster: str | Path | Cluster = DEFAULT_CLUSTER,
    policy: str = "fifo",
    *,
    progress: Progress | None = None,
    **options: Unpack[Options],
) -> Result:
    """Replay a trace on a cluster under one policy.

    `trace` is a file, `synthetic:NAME`, a `Trace`, or None for the built-in demo; `cluster` is NODESxGPUS[:model], a
    TOML file or a `Cluster`; `policy` is a preset or `stage=name` pairs. The options are those of `Options`.
    """
    if options.get("split") is not None:
        return _in_parts([policy], trace, cluster, options, workers=1, progress=progress)[0]
    return _runs([policy], trace, cluster, options)[0].result(progress)


def compare(
    policies: Sequence[str],
    trace: str | Path | Trace | None = None,
    cluster: str | Path | Cluster = DEFAULT_CLUSTER,
    *,
    workers: int | None = None,
    progress: Progress | None = None,
    **options: Unpack[Options],
) -> list[Result]:
    """Replay the same trace under each policy, in parallel processes; the results are in the order of `policies`.

    `options` are those of `simulate`. `workers` is the number of processes: as many as there are policies or cores,
    whichever is fewer, unless given; 1 stays in this process. In a script, call it under `if __name__ == "__main__":`.
    """
    if isinstance(policies, str) or not policies:
        raise InputError(f"compare needs a list of policies, found {policies!r}", hint="for example ['fifo', 'srtf']")
    for number, policy in enumerate(policies):
        if policy in policies[:number]:
            raise InputError(f"policy {policy!r} is given twice")
    if workers is not None and workers < 1:
        raise InputError(f"workers is {workers}; it must be at least 1")
    if options.get("split") is not None:
        return _in_parts(policies, trace, cluster, options, workers=workers, progress=progress)
    runs = _runs(policies, trace, cluster, options)
    for run in runs:  # a misspelt name should not cost the time of the others
        run.check()
    return run_all(runs, workers=workers, progress=progress)


def _in_parts(
    policies: Sequence[str],
    trace: str | Path | Trace | None,
    cluster: str | Path | Cluster,
    options: Options,
    *,
    workers: int | None,
    progress: Progress | None,
) -> list[Result]:
    """Every policy on every part of the trace, each part on a cluster of its own; per policy all parts together."""
    column = options.get("split") or ""
    if options.get("services") is not None:
        raise InputError("services are there from the start, on one cluster: a trace beside them can't be split")
    read = _read(trace, options)
    parts = read.split(column)
    clusters = clusters_of_parts(cluster, parts)
    lacking = [name for name, found in clusters.items() if found is None]
    if lacking and not options.get("drop_too_wide"):
        raise InputError(
            f"{cluster} has no GPUs for {column} {lacking[0]!r}, which has {len(parts[lacking[0]]):,} jobs",
            hint="give it GPUs there, or leave its jobs out with --drop-too-wide",
        )
    runs: dict[str, list[Run]] = {}
    for name, own in clusters.items():
        fitting = None if own is None else _runs(policies, parts[name], own, options)
        if fitting is not None and len(fitting[0].trace):
            runs[name] = fitting
    if not runs:
        raise InputError(f"no {column} of the trace has a job that fits on its cluster", hint="take a larger --cluster")
    flat = [runs[name][number] for number in range(len(policies)) for name in runs]
    for run in flat:
        run.check()
    results = iter(run_all(flat, workers=workers, progress=progress))
    left_out = [f"{column} {n}: {len(parts[n]):,} jobs left out, no GPUs for them" for n in parts if n not in runs]
    joined = [together(column, {name: next(results) for name in runs}, read.notes) for _ in policies]
    return [replace(result, notes=(*result.notes, *left_out)) for result in joined]


class JobOptions(TypedDict, total=False):
    """What `submit` takes besides the command; all may be left out."""

    name: str
    """Else what its program is called."""
    kind: Literal["training", "service"]
    gpus: int
    min_gpus: int
    """With `max_gpus`: its width may be chosen, and changed while it runs."""
    max_gpus: int
    memory_mib: float
    """On each GPU."""
    profile: str
    """What it is like; see the guide."""
    deadline_s: float
    """From now on."""
    estimate_s: float
    """How long it takes alone on the GPUs asked for."""
    priority: int | str
    """low, normal, high or a number."""
    slo_s: float
    """Of a service: the latency that it must keep."""
    batch: int
    env: Mapping[str, str]
    retries: int
    """Starts after a failure."""
    grace_s: float
    """From SIGTERM to SIGKILL."""
    hold: bool
    """Until it is released."""


def submit(command: Sequence[str], *, cwd: str | Path | None = None, **options: Unpack[JobOptions]) -> int:
    """Submit a job to the live controller, and give its number when it is safely stored.

    The controller is the one that FAIRLEAD_URL and FAIRLEAD_TOKEN name, else the one of FAIRLEAD_HOME or ~/.fairlead.
    The job runs in `cwd`, this folder unless given. The options are those of `JobOptions`.
    """
    from fairlead.live.client import default_client
    from fairlead.live.jobs.job_files import request

    words = command if isinstance(command, str) else list(command)
    folder = str(Path.cwd() if cwd is None else Path(cwd).absolute())
    wanted = request({"cwd": folder, **options, "command": words}, "this job")
    with default_client() as client:
        return int(client.submit(wanted.model_dump(mode="json", exclude_unset=True))["id"])


def save_history(result: Result, path: str | Path) -> None:
    """Write what the sharing policy of a run has learnt, for the `history` of another."""
    if result.history is None:
        raise InputError(f"{result.policy} keeps no history", hint="sharing=eaco does")
    save_interference(Interference.from_dict(result.history), Path(path))


def _runs(
    policies: Sequence[str], trace: str | Path | Trace | None, cluster: str | Path | Cluster, options: Options
) -> list[Run]:
    """Check the values first, as that is cheap, then read the files."""
    unknown = sorted(set(options) - set(Options.__annotations__))
    if unknown:
        raise InputError(f"unknown option {unknown[0]!r}", hint=f"known: {', '.join(Options.__annotations__)}")
    _check_values(options)
    if not isinstance(cluster, Cluster):
        cluster = load_cluster(str(cluster))
    rent = options.get("rent")
    if rent is not None:
        cluster = cluster.rented(rent if isinstance(rent, Rental) else parse_rental(rent))
    believed, true = options.get("variability"), options.get("true_variability")
    if believed is not None:
        cluster = cluster.with_variability(load_variability(Path(believed), cluster))
    if options.get("correct_scores") is not None and cluster.variability is None:
        raise InputError("correct_scores corrects a variability profile, but there is none", hint="give variability")
    mtbf_h, repair_h = options.get("mtbf_h"), options.get("repair_h")
    failures = None
    if mtbf_h is not None:
        failures = Failures(mtbf_h) if repair_h is None else Failures(mtbf_h, repair_h)
    history, carbon = options.get("history"), options.get("carbon")
    truth = _table(options.get("interference") or DEFAULT_INTERFERENCE)
    known = options.get("training")
    if isinstance(known, str | Path):
        known = load_training(known)
    read = _read(trace, options)
    profiles = options.get("profiles")
    if profiles is not None:
        read = _profiled(read, load_profiles(Path(profiles)))
    if known is not None:
        read = _trained(read, known, cluster)
    services = options.get("services")
    if services is not None:
        read = join_services(read, load_services(services))
    _check_classes(options.get("locality"), read)
    world = World(
        seed=options.get("seed", 0),
        locality=options.get("locality"),
        restart_s=options.get("restart_s"),
        failures=failures,
        true_variability=None if true is None else load_variability(Path(true), cluster),
        drifts=tuple(parse_drift(text, cluster) for text in options.get("slow", ())),
        correct_scores=options.get("correct_scores"),
        drained=tuple(cluster.gpu_numbered(text) for text in options.get("drain", ())),
        interference=truth,
        records=options.get("record", False),
    )
    round_s = options.get("round_s")
    if options.get("drop_too_wide"):
        stacks = [registry.build(policy, round_s=round_s, read=read_text) for policy in policies]
        read = without_too_wide(read, cluster, stacks, set(world.drained))
    known_pairs = None if history is None else _table(history)
    burnt = None if carbon is None else parse_carbon(str(carbon))
    return [Run(read, cluster, policy, world, round_s, known_pairs, burnt) for policy in policies]


def _table(name: str | Path) -> Interference:
    """A built-in table by name, or one from a file."""
    if str(name) in BUILT_IN:
        return built_in(str(name))
    path = Path(name)
    if not path.exists() and not path.suffix:
        raise InputError(f"unknown table {str(name)!r}", hint=f"{did_you_mean(str(name), BUILT_IN)}, or a file")
    return load_interference(path)


def _profiled(trace: Trace, known: Sequence[Profile]) -> Trace:
    """The trace with these profiles of its jobs, whatever the case of their names."""
    by_name = {profile.name.lower(): profile for profile in known}
    used = trace.frame["profile"].unique().to_list()
    found = {name: replace(by_name[name.lower()], name=name) for name in used if name.lower() in by_name}
    met, notes = {name.lower() for name in found}, []
    if unused := sorted(profile.name for name, profile in by_name.items() if name not in met):
        notes.append(f"no job of the trace uses these profiles: {', '.join(unused)}")
    return replace(trace, profiles={**trace.profiles, **found}, notes=(*trace.notes, *notes))


def _trained(trace: Trace, known: Mapping[str, Training], cluster: Cluster) -> Trace:
    """The trace with what is known of how its jobs train, and a note of what is not used or not known."""
    used = set(trace.frame["profile"].unique())
    notes = []
    if unused := sorted(set(known) - used):
        notes.append(f"no job of the trace has these profiles: {', '.join(unused)}")
    if others := sorted(used - set(known)):
        shown = ", ".join(others[:_SHOWN]) + (f" and {len(others) - _SHOWN} more" if len(others) > _SHOWN else "")
        notes.append(f"nothing is known of how these train, their jobs run as their profile says: {shown}")
    return replace(trace.training(known, cluster.node_gpus), notes=(*trace.notes, *notes))


def _check_classes(locality: Locality | None, trace: Trace) -> None:
    known = {trace.profile(name).app_class for name in trace.frame["profile"].unique()}
    for name in locality if isinstance(locality, Mapping) else ():
        if name not in known:
            raise InputError(f"locality is given for class {name!r}, which no job has", hint=did_you_mean(name, known))


def _check_values(options: Options) -> None:
    _check("round_s", options.get("round_s"), above=0.0)
    _check("restart_s", options.get("restart_s"), least=0.0)
    _check("seed", options.get("seed"), least=0)
    _check("mtbf_h", options.get("mtbf_h"), above=0.0)
    _check("repair_h", options.get("repair_h"), least=0.0)
    locality = options.get("locality")
    for value in locality.values() if isinstance(locality, Mapping) else (locality,):
        _check("locality", value, least=1.0)
    repair_h = options.get("repair_h")
    if repair_h is not None and options.get("mtbf_h") is None:
        raise InputError(
            f"repair_h is {repair_h:g}, but no node ever fails without mtbf_h", hint="give mtbf_h, or drop repair_h"
        )
    watch = options.get("correct_scores")
    if watch is not None and watch not in WATCHES:
        raise InputError(f"correct_scores is {watch!r}", hint=f"known: {', '.join(WATCHES)}")


def _read(trace: str | Path | Trace | None, options: Options) -> Trace:
    if isinstance(trace, Trace):
        return trace
    if trace is None:
        return traces.builtin_demo()
    return traces.load(
        str(trace),
        skip_bad_rows=options.get("skip_bad_rows", False),
        wrap=options.get("wrap", True),
        throughputs=options.get("throughputs"),
    )


def _check(name: str, value: float | None, *, least: float | None = None, above: float | None = None) -> None:
    """A finite number within its bound; `nan` is within none."""
    if value is None:
        return
    if above is not None:
        fits, bound = value > above, f"above {above:g}"
    else:
        fits, bound = least is not None and value >= least, f"at least {least:g}"
    if not fits or not math.isfinite(value):
        raise InputError(f"{name} is {value:g}; it must be a finite number, {bound}")
