"""What PAL's comparison runs on: traces, profiles and clusters, from public data or made up."""

from __future__ import annotations

import json
import random
import statistics
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl

from fairlead import traces
from fairlead.errors import InputError
from fairlead.measure import import_runs, synthetic_variability
from fairlead.measure.runs import read_runs
from fairlead.model.cluster import Cluster, parse_shape
from fairlead.model.files import load_variability
from fairlead.model.variability import Variability
from fairlead.traces import Trace, Wrap

LARGE = "64x4"
_REPRESENTATIVES = {"A": "resnet", "B": "bert", "C": "bert", "D": "pagerank"}


@dataclass(frozen=True)
class Setting:
    """Everything that the comparison needs."""

    data: str
    traces: dict[str, Trace]
    cluster: Cluster
    """64 GPUs with the scores of the published draw."""
    published: dict[str, Any]
    """The published simulator's figures by trace and policy; empty without data."""
    large: Trace
    """A load for 256 GPUs."""
    large_clusters: dict[str, Cluster]
    """256 GPUs with real variability, by where it comes from."""


def setting(data: Path | None) -> Setting:
    """From the folder of public data, or synthetic."""
    return _public(data / "pal") if data is not None else _synthetic()


def without_outlier(cluster: Cluster) -> tuple[Cluster, int]:
    """The cluster with the slowest class-A GPU made a median one, and that GPU."""
    assert cluster.variability is not None
    scores = {name: list(values) for name, values in cluster.variability.scores.items()}
    worst = max(range(cluster.gpus), key=lambda g: scores["A"][g])
    scores["A"][worst] = statistics.median(scores["A"])
    return cluster.with_variability(Variability(scores)), worst


def _public(pal: Path) -> Setting:
    files = sorted((pal / "traces").glob("workload-*.csv"), key=lambda f: int(f.stem.split("-")[1]))
    if not files:
        raise InputError(f"{pal / 'traces'}: no workload-*.csv found", hint="--data names the folder that holds pal/")
    read = {file.stem: traces.load(file) for file in files}
    cluster = parse_shape("16x4")
    cluster = cluster.with_variability(load_variability(pal / "profile64_seed42.json", cluster))
    expected = pal / "expected_64gpu_fifo_L1.7.json"
    return Setting(
        data=f"{len(read)} Sia-Philly traces, PAL's 64-GPU draw, Longhorn and Frontera measurements",
        traces=read,
        cluster=cluster,
        published=json.loads(expected.read_text()) if expected.is_file() else {},
        large=_merged(list(read.values())[:4]),
        large_clusters={
            "one random Longhorn run per GPU": _drawn(pal / "longhorn", seed=42),
            "Longhorn medians, real nodes": _measured(pal / "longhorn"),
            "Frontera medians, real nodes": _measured(pal / "frontera"),
        },
    )


def _synthetic() -> Setting:
    made = {f"synthetic-{seed}": _sia_like(seed) for seed in range(1, 6)}
    cluster = parse_shape("16x4")
    scores = synthetic_variability(cluster, between=0.03, within=0.05, outliers=0.016, outlier_factor=2.8, seed=1)
    large = parse_shape(LARGE)
    made_large = synthetic_variability(large, between=0.04, within=0.03, outliers=0.01, seed=2)
    return Setting(
        data="synthetic profiles and traces: no --data was given, so the published figures are for orientation only",
        traces=made,
        cluster=cluster.with_variability(scores),
        published={},
        large=_merged(list(made.values())[:4]),
        large_clusters={"synthetic profile": large.with_variability(made_large)},
    )


# Six applications in the proportions, widths and run times (median seconds, spread of their logarithm) that fill the
# published traces: many small jobs, and a few long and wide ones that decide everything.
_MIX = (
    ("vgg19", 42, (1,), 300.0, 0.7),
    ("PointNet", 38, (6, 8, 12, 16), 230.0, 0.8),
    ("DCGAN", 6, (6, 8, 12), 320.0, 0.9),
    ("BERT", 3, (6, 8, 12, 16), 1000.0, 0.5),
    ("GPT2", 2, (6, 8, 12, 16), 20_000.0, 0.7),
    ("resnet50", 9, (4, 4, 4, 4, 4, 24, 32, 48), 15_000.0, 0.9),
)


def _sia_like(seed: int) -> Trace:
    """160 jobs in eight hours, wrapping round like the published traces."""
    rng = random.Random(seed)
    drawn = rng.choices(_MIX, weights=[share for _, share, *_ in _MIX], k=160)
    frame = {
        "job_id": [str(i) for i in range(160)],
        "submit_s": sorted(float(rng.randrange(8 * 3600)) for _ in range(160)),
        "gpus": [rng.choice(widths) for _, _, widths, _, _ in drawn],
        "duration_s": [min(300_000.0, median * rng.lognormvariate(0.0, spread)) for *_, median, spread in drawn],
        "profile": [name for name, *_ in drawn],
    }
    return replace(Trace.from_columns(pl.DataFrame(frame), source=f"synthetic Sia-Philly, seed {seed}"), wrap=Wrap())


def _merged(parts: list[Trace]) -> Trace:
    """Several traces at once, without wrapping: the load of a cluster that many times as large."""
    frames = [
        part.frame.with_columns(pl.concat_str(pl.lit(f"{i}/"), "job_id").alias("job_id"))
        for i, part in enumerate(parts)
    ]
    merged = Trace.from_columns(pl.concat(frames), source=f"{len(parts)} traces at once")
    return replace(merged, profiles=dict(parts[0].profiles))


def _measured(folder: Path) -> Cluster:
    """The first 64 measured nodes that have four GPUs, with the medians of their GPUs."""
    files = [file for file in sorted(folder.glob("*.csv")) if "sgemm" not in file.name]
    imported = import_runs(files)
    measured, scores = imported.cluster, imported.variability.scores
    whole = [i for i, node in enumerate(measured.nodes) if node.gpus == 4][:64]
    gpus = [g for i in whole for g in range(measured.first_gpu[i], measured.first_gpu[i + 1])]
    return parse_shape(LARGE).with_variability(
        Variability({c: [values[g] for g in gpus] for c, values in scores.items()})
    )


def _drawn(folder: Path, seed: int) -> Cluster:
    """Each GPU's score per class is one random run over the median run, as in PAL's own simulation."""
    runs = read_runs([file for file in sorted(folder.glob("*.csv")) if "sgemm" not in file.name]).runs
    times = {c: [r.perf for r in runs if r.application == app] for c, app in _REPRESENTATIVES.items()}
    rng = random.Random(seed)
    cluster = parse_shape(LARGE)
    scores: dict[str, list[float]] = {c: [] for c in times}
    for _ in range(cluster.gpus):
        for c, perfs in times.items():
            scores[c].append(rng.choice(perfs) / statistics.median(perfs))
    return cluster.with_variability(Variability(scores))
