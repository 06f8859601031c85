"""Kubernetes: Kueue's workloads, or pods, as JSON lines; lists (`kubectl get ... -o json`) and watched changes too.

A Kueue `Workload` was submitted when it was created, ran from its condition Admitted (QuotaReserved, where that is not
there) to Finished, and used the GPUs that were assigned to its pod sets. Only its last admission is known: what it ran
before an eviction is not. A `Pod` ran from when it was scheduled until its last container ended; the pods of one Job
are one job, as wide as those of them that ran at the same time. An object that comes several times counts as it was
last. `Event`s tell when a pod was scheduled or killed, where it does not say so itself; of GPUs they say nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import polars as pl

from fairlead.errors import InputError
from fairlead.traces.formats.format import Format
from fairlead.traces.kube import (
    Object,
    gpus_of,
    kind_of,
    last_of_each,
    objects_in,
    part,
    pod_gpus,
    seconds,
    told_of_pods,
)
from fairlead.traces.parsing import number, text, whole
from fairlead.traces.reading import Field, Reading, from_zero, or_more, own
from fairlead.traces.rows import LINE, Sheet
from fairlead.traces.source import Source

_SERVERS = ("ReplicaSet", "StatefulSet", "DaemonSet", "Node")
"""Owners whose pods each run for themselves; any other owner is a job."""
_QUEUE_LABELS = ("kueue.x-k8s.io/queue-name", "volcano.sh/queue-name")
_ENDED = ("Killing", "Completed", "Evicted", "Preempted", "Preempting")
_SCHEMA = {
    LINE: pl.UInt32, "job_id": pl.String, "user": pl.String, "vc": pl.String, "priority": pl.Int64, "gpus": pl.Int64,
    "submit_s": pl.Float64, "began": pl.Boolean, "duration_s": pl.Float64, "wrong": pl.String,
}  # fmt: skip
_FIELDS = [
    own("job_id", "metadata.name", parse=text),
    own("user", optional=True),
    own("vc", optional=True),
    own("priority", parse=whole, optional=True),
    or_more("gpus", "gpus", 0, "GPUs", parse=whole),
    Field("object", "wrong", text, "times like 2024-05-01T10:00:00Z and whole GPUs", pl.col("wrong").is_null(), True),
    Field("creationTimestamp", "submit_s", number, "a time", optional=True),
    Field("began", "began", lambda cells: cells, "yes or no"),
    Field("duration_s", "duration_s", number, "a number of seconds", optional=True),
]


@dataclass
class _Run:
    """What one job asked for and did; the pods of a Job are several runs at once."""

    line: int
    name: str
    uid: str = ""
    namespace: str = ""
    queue: str = ""
    priority: int | None = None
    submit_s: float | None = None
    spans: list[tuple[float, float | None, int]] = field(default_factory=list)
    """(start, end or None while it runs, GPUs)."""
    asked: int = 0
    """GPUs of what has not started."""
    wrong: str | None = None

    def row(self) -> tuple[object, ...]:
        """In the order of `_SCHEMA`."""
        done = [(start_s, end_s, gpus) for start_s, end_s, gpus in self.spans if end_s is not None]
        ended = len(done) == len(self.spans) and bool(done)
        return (
            self.line, self.name, self.namespace, self.queue, self.priority, max(self.asked, _peak(self.spans)),
            self.submit_s, bool(self.spans), _covered_s(done) if ended else None, self.wrong,
        )  # fmt: skip


def _peak(spans: Iterable[tuple[float, float | None, int]]) -> int:
    """The most GPUs that were held at one moment."""
    steps = []
    for start_s, end_s, gpus in spans:
        steps.append((start_s, gpus))
        if end_s is not None:
            steps.append((end_s, -gpus))
    held = most = 0
    for _, change in sorted(steps):
        held += change
        most = max(most, held)
    return most


def _covered_s(spans: Iterable[tuple[float, float, int]]) -> float:
    """The time in which at least one ran."""
    total_s, until_s = 0.0, float("-inf")
    for start_s, end_s, _ in sorted(spans):
        total_s += max(0.0, end_s - max(start_s, until_s))
        until_s = max(until_s, end_s)
    return total_s


def _read(reading: Reading) -> pl.DataFrame:
    found: dict[str, list[tuple[int, Object]]] = {}
    for line, thing in last_of_each(reading.source.entries):
        found.setdefault(kind_of(thing), []).append((line, thing))
    workloads, pods = found.get("Workload", []), found.get("Pod", [])
    if not workloads and not pods:
        raise InputError(
            f"{reading.source.name} has no workloads and no pods, only {', '.join(sorted(found)) or 'nothing'}",
            hint="events say nothing of GPUs: add `kubectl get workloads -A -o json`, or pods",
        )
    if workloads and pods:
        reading.notes.append(f"pods beside workloads: {len(pods):,} left out, the workloads stand for them")
    others = sum(len(things) for kind, things in found.items() if kind not in ("Workload", "Pod", "Event"))
    if others:
        reading.notes.append(f"objects that are no workloads or pods: {others:,} left out")
    runs = [_workload(*w) for w in workloads] or _jobs_of(pods, told_of_pods(found.get("Event", [])))
    rows = [run.row() for run in _distinct(runs)]
    sheet = pl.DataFrame(rows, schema=_SCHEMA, orient="row").rename(
        {"job_id": "metadata.name", "wrong": "object", "submit_s": "creationTimestamp"}
    )
    frame = reading.without_gpus(reading.values_of([Sheet(sheet)], _FIELDS))
    frame = reading.leave_out(frame, ~pl.col("began"), "jobs that never started")
    frame = reading.leave_out(frame, pl.col("duration_s").is_null(), "jobs that still run")
    return from_zero(reading.without_run_time(frame).drop("began", "wrong"))


def _workload(line: int, thing: Object) -> _Run:
    run = _named(line, thing)
    try:
        status, spec = part(thing, "status"), part(thing, "spec")
        admission = part(status, "admission")
        run.queue = str(admission.get("clusterQueue") or spec.get("queueName") or "")
        assigned = sum(gpus_of(a.get("resourceUsage")) for a in admission.get("podSetAssignments") or ())
        asked = sum(int(s.get("count", 1)) * pod_gpus(s["template"]["spec"]) for s in spec.get("podSets") or ())
        true_s = {
            c["type"]: seconds(c.get("lastTransitionTime"))
            for c in status.get("conditions") or ()
            if c.get("status") == "True"
        }
        start_s = true_s.get("Admitted", true_s.get("QuotaReserved"))
        run.asked = assigned or asked
        if start_s is not None:
            run.spans.append((start_s, true_s.get("Finished"), run.asked))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        run.wrong = f"{type(error).__name__}: {error}"
    return run


def _named(line: int, thing: Object) -> _Run:
    about, spec = part(thing, "metadata"), part(thing, "spec")
    namespace = str(about.get("namespace") or "")
    name = str(about.get("name") or "")
    run = _Run(line, f"{namespace}/{name}" if namespace and name else name, str(about.get("uid") or ""), namespace)
    run.wrong = thing.get("wrong")
    try:
        run.submit_s = seconds(about.get("creationTimestamp"))
        if run.submit_s is None and run.wrong is None:
            run.wrong = "no creationTimestamp"
        run.priority = None if spec.get("priority") is None else int(spec["priority"])
    except (ValueError, TypeError, AttributeError) as error:
        run.wrong = str(error)
    return run


def _jobs_of(pods: list[tuple[int, Object]], told: Mapping[str, Mapping[str, float]]) -> list[_Run]:
    """Pods by the job that owns them."""
    jobs: dict[str, _Run] = {}
    for line, thing in pods:
        pod = _pod(line, thing, told)
        about = part(thing, "metadata")
        owner = next((o for o in about.get("ownerReferences") or () if o.get("controller")), None)
        if owner is not None and owner.get("kind") not in _SERVERS:
            pod.uid = str(owner.get("uid") or "")
            pod.name = f"{pod.namespace}/{owner.get('name', '')}"
        job = jobs.setdefault(pod.uid or pod.name, pod)
        if job is not pod:
            job.spans += pod.spans
            job.wrong = job.wrong or pod.wrong
            job.submit_s = min((s for s in (job.submit_s, pod.submit_s) if s is not None), default=None)
    return list(jobs.values())


def _pod(line: int, thing: Object, told: Mapping[str, Mapping[str, float]]) -> _Run:
    run = _named(line, thing)
    labels = part(part(thing, "metadata"), "labels")
    run.queue = next((str(labels[label]) for label in _QUEUE_LABELS if label in labels), "")
    events = told.get(run.name, {})
    try:
        status = part(thing, "status")
        run.asked = pod_gpus(part(thing, "spec"))
        true_s = {
            c["type"]: c.get("lastTransitionTime") for c in status.get("conditions") or () if c["status"] == "True"
        }
        start_s = seconds(true_s.get("PodScheduled") or status.get("startTime"))
        start_s = events.get("Scheduled") if start_s is None else start_s
        if start_s is not None:
            run.spans.append((start_s, _pod_end_s(thing, events), run.asked))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        run.wrong = f"{type(error).__name__}: {error}"
    return run


def _pod_end_s(thing: Object, events: Mapping[str, float]) -> float | None:
    status = part(thing, "status")
    states = [c.get("state") or {} for c in status.get("containerStatuses") or ()]
    if states and all("terminated" in state for state in states):
        ends_s = [seconds(state["terminated"].get("finishedAt")) for state in states]
        return max((end_s for end_s in ends_s if end_s is not None), default=None)
    deleted_s = seconds(part(thing, "metadata").get("deletionTimestamp"))
    told_s = [events[reason] for reason in _ENDED if reason in events]
    return deleted_s if deleted_s is not None else max(told_s, default=None)


def _distinct(runs: list[_Run]) -> list[_Run]:
    """A name that was given again, to another object, gets the start of its uid."""
    names: set[str] = set()
    for run in runs:
        if run.name in names and run.uid:
            run.name = f"{run.name}-{run.uid[:8]}"
        names.add(run.name)
    return runs


def _is_kubernetes(source: Source) -> bool:
    first = next(iter(objects_in(source.entries[0][1])), {})
    return kind_of(first) in ("Workload", "Pod", "Event") or str(first.get("apiVersion", "")).startswith(
        "kueue.x-k8s.io/"
    )


KUBERNETES = Format(
    "kubernetes",
    "Kueue workloads or Kubernetes pods",
    ("kind", "metadata", "spec"),
    _read,
    kinds=("json",),
    against=lambda source: None if _is_kubernetes(source) else "its objects are workloads, pods or events",
    without_header=_is_kubernetes,
    id_column="metadata.name",
)
