"""What an agent knows and answers, without processes: its jobs run until somebody ends them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fairlead.node.stream.delta import difference


@dataclass
class SimulatedAgent:
    """One node's agent. `difference` is what it would tell its controller now."""

    name: str
    gpus: list[dict[str, Any]]
    wall_s: Callable[[], float] = time.time
    attempts: dict[str, dict[str, Any]] = field(default_factory=dict)
    barred: dict[str, dict[str, Any]] = field(default_factory=dict)
    readings: dict[str, dict[str, Any]] = field(default_factory=dict)
    _told: dict[str, Any] | None = None
    _changes: int = 0

    def __post_init__(self) -> None:
        self.readings = {
            info["uuid"]: {"gpu": info["uuid"], "accepts_offline": True, "guard_state": ""} for info in self.gpus
        }

    def status(self) -> dict[str, Any]:
        return {
            "revision": f"{self.name}-{self._changes}", "hostname": self.name, "address": None, "pid": 1,
            "start_ticks": 1, "settings": {}, "is_fake": True, "is_awake": True, "guard_age_s": 0.1,
            "gpus": self.gpus, "attempts": list(self.attempts.values()), "barred": list(self.barred.values()),
            "readings": list(self.readings.values()), "event_log": self.name, "events": [],
        }  # fmt: skip

    def begin(self) -> None:
        """A new connection: everything is told again."""
        self._told = None

    def difference(self, *, restless: bool = False) -> dict[str, Any]:
        self._changes += 1
        now = self.status()
        told = difference(self._told, now, restless=restless or self._told is None)
        self._told = now
        return told

    def carry_out(self, what: str, about: Mapping[str, Any]) -> Any:
        """Do what a controller asks for; what it is answered."""
        match what:
            case "start":
                if about["id"] not in self.barred:
                    self.attempts.setdefault(about["id"], self._attempt(about))
                return {"master_port": 12000}
            case "stop" if about["id"] in self.attempts:
                self.end(about["id"], 143)
            case "stop":
                self.barred[about["id"]] = {"id": about["id"], "nodes": about.get("nodes", [])}
            case "forget":
                self.attempts.pop(about["id"], None)
                self.barred.pop(about["id"], None)
            case "log":
                return None
            case "known":
                return 0
        return {}

    def end(self, attempt: str, exit_code: int = 0, **more: Any) -> None:
        part = self.attempts[attempt]
        if part["state"] == "ended":
            return
        over = {"state": "ended", "exit_code": exit_code, "reason": "signalled" if exit_code else "exited"}
        if exit_code:
            over |= {"stopped_by": "fairlead", "stop_requested_at_s": self.wall_s()}
        self.attempts[attempt] = {**part, **over, "ended_at_s": self.wall_s(), **more}

    def _attempt(self, order: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "id": order["id"], "gpus": order["gpus"], "nodes": order["nodes"], "rank": order["rank"],
            "state": "running", "exit_code": None, "reason": "", "detail": "", "started_at_s": self.wall_s(),
            "ended_at_s": None, "ended_ago_s": None, "ran_s": None, "grace_s": 30.0, "stop_requested_at_s": None,
            "stopped_by": "", "evicted": "", "progress": None, "energy_j": None, "energy_at_s": None,
        }  # fmt: skip
