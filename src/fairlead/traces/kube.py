"""Objects of Kubernetes as `kubectl -o json` and watches give them: which they are, their times and their GPUs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

Object = Mapping[str, Any]


def last_of_each(entries: Iterable[tuple[int, Any]]) -> list[tuple[int, Object]]:
    """Every object once, as it was last, at the line where it came first."""
    seen: dict[tuple[str, ...], tuple[int, Object]] = {}
    for line, entry in entries:
        for thing in objects_in(entry):
            about = part(thing, "metadata")
            named = about.get("uid") or (about.get("name") and f"{about.get('namespace', '')}/{about['name']}")
            key = (kind_of(thing), str(named or f"the {len(seen)}th"))
            seen[key] = (seen[key][0] if key in seen else line, thing)
    return list(seen.values())


def objects_in(entry: Any) -> Iterator[Object]:
    """The objects in a line: itself, those of a list, or the one that a watch tells of."""
    if not isinstance(entry, Mapping):
        yield {"kind": "Workload", "metadata": {"name": ""}, "wrong": repr(entry)}
    elif isinstance(entry.get("items"), list):
        for item in entry["items"]:
            yield from objects_in(item)
    elif isinstance(entry.get("object"), Mapping):
        yield from objects_in(entry["object"])
    else:
        yield entry


def part(thing: Object, name: str) -> Object:
    """One part of an object; empty where it is not there, or is no object."""
    found = thing.get(name)
    return found if isinstance(found, Mapping) else {}


def kind_of(thing: Object) -> str:
    """Its kind; an item of a list need not say it, and is known by what it has."""
    if thing.get("kind"):
        return str(thing["kind"])
    spec = part(thing, "spec")
    if "involvedObject" in thing or "regarding" in thing:
        return "Event"
    return "Workload" if "podSets" in spec else "Pod" if "containers" in spec else "unknown"


def told_of_pods(events: list[tuple[int, Object]]) -> dict[str, dict[str, float]]:
    """What events say of pods: the moment of each reason, the last where it came several times."""
    found: dict[str, dict[str, float]] = {}
    for _, event in events:
        about = part(event, "involvedObject") or part(event, "regarding")
        when = event.get("lastTimestamp") or event.get("eventTime") or event.get("firstTimestamp")
        try:
            moment_s = seconds(when)
        except ValueError:
            continue
        if about.get("kind") == "Pod" and moment_s is not None:
            pod = found.setdefault(f"{about.get('namespace', '')}/{about.get('name', '')}", {})
            pod[str(event.get("reason"))] = moment_s
    return found


def pod_gpus(spec: Object) -> int:
    """GPUs of a pod: its containers run together, those that come before them one by one."""
    together = sum(_container_gpus(c) for c in spec.get("containers") or ())
    return max([together, *(_container_gpus(c) for c in spec.get("initContainers") or ())])


def _container_gpus(container: Object) -> int:
    resources = container.get("resources") or {}
    return gpus_of({**(resources.get("limits") or {}), **(resources.get("requests") or {})})


def gpus_of(amounts: Object | None) -> int:
    """Whole GPUs among resources: `nvidia.com/gpu`, `amd.com/gpu` and the like; slices of a GPU are none."""
    return sum(
        int(float(amount))
        for name, amount in (amounts or {}).items()
        if name.endswith("/gpu") or name.startswith("gpu.intel.com/")
    )


def seconds(when: object) -> float | None:
    """Seconds since 1970; a time without a zone is UTC, as Kubernetes writes all of its."""
    if not when:
        return None
    moment = datetime.fromisoformat(str(when))
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
