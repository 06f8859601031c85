"""`fairlead up --engine slurm`: nodes come as pilot jobs (`pilots.py`), and go when they are not needed.

To wake or rent a node is to submit its pilot, to let it sleep or give it back is to cancel it. A pilot that nears its
time limit, or that Slurm has taken away, is leaving: the controller stops its jobs in time and goes on elsewhere.
"""

from __future__ import annotations

import json
import logging
import secrets
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fairlead.errors import InputError
from fairlead.live.engines.agent_engine import AgentEngine
from fairlead.live.engines.engine import EngineError
from fairlead.live.engines.remote.places import Door, Facts, Place, RemoteNodes, new_token
from fairlead.live.engines.slurm import commands
from fairlead.live.engines.slurm.pilots import Pilot, Pool, new_name, script, submit
from fairlead.model.cluster import Node, gpu_model_named

if TYPE_CHECKING:
    from fairlead.live.engines.registry import Site

log = logging.getLogger("fairlead")
_PILOTS = "pilots"
_UNKNOWN_S = 120.0
"""A pilot that Slurm does not know so long after it was submitted is none."""
_KILL_PART = 0.6
"""Of the time that Slurm leaves between SIGTERM and SIGKILL, what the agent gives its jobs."""


class SlurmNodes(RemoteNodes):
    """Places for pilots, pool by pool; Slurm is looked at every `look_s`."""

    def __init__(
        self,
        facts: Facts,
        door: Door,
        pools: Mapping[str, Pool],
        *,
        agent: list[str],
        fake: bool = False,
        setup: str = "",
        folder: str = "/tmp",
        handover_s: float = 120.0,
        look_s: float = 2.0,
        boot_s: float = 0.0,
    ) -> None:
        """`agent` is the agent's command line, `folder` where it keeps its jobs on its node."""
        super().__init__(facts, door, is_fake=fake)
        self._pools: list[Pool] = []
        for name, pool in pools.items():
            model = gpu_model_named(pool.model)
            for number in range(pool.nodes):
                self._places.append(Place(Node(f"{name}-{number}", pool.gpus, model, wake_s=boot_s)))
                self._pools.append(pool)
        saved = facts.fact(_PILOTS) or {}
        self._site: str = saved.get("site") or secrets.token_hex(3)
        self._pilots: dict[int, Pilot] = {}
        self._restore(saved.get("places", {}))
        self._setup, self._folder, self._handover_s, self._look_s = setup, folder, handover_s, look_s
        self._agent = agent
        self._looked_s = -1e9
        self._leaving: frozenset[int] = frozenset()
        slurm = commands.settings()
        kill_s = float(slurm.get("KillWait", "30").split()[0])
        self._end_jobs_s = max(_KILL_PART * kill_s - 0.5, 0.2)
        self._kills_all = "cgroup" in slurm.get("ProctrackType", "")
        """Whether Slurm ends every process of a job; other ways of tracking lose those that left their session."""

    def _restore(self, saved: Mapping[str, Any]) -> None:
        for number, place in enumerate(self._places):
            known = saved.get(place.node.name)
            if known is not None:
                place.identity = known["identity"]
                if known["pilot"] is not None:
                    pilot = self._pilots[number] = Pilot(**known["pilot"], submitted_s=time.monotonic())
                    place.token_hash = pilot.token_hash

    # ---- for the engine ----

    def wake(self, node: int) -> None:
        """Submit a pilot, unless there is one."""
        with self._lock:
            place = self._places[node]
            if node in self._pilots or place.identity:
                return
            token, token_hash = new_token()
            name = new_name(self._site, place.node.name)
            pilot = self._pilots[node] = Pilot(name, token_hash, submitted_s=time.monotonic())
            place.token_hash = token_hash
            self._keep()  # before it is submitted: whoever finds it at Slurm's knows whose it is
        known = {"controller": self.dialled, "fingerprint": self.certificate.fingerprint}
        known |= {"node": place.node.name, "token": token}
        agent = [*self._agent, "--end-jobs-s", f"{self._end_jobs_s:g}", *self._made_up(node)]
        text = script(name, agent=agent, setup=self._setup, folder=self._folder, credentials=known)
        try:
            pilot.job_id = submit(self._pools[node], name, text)
        except EngineError:
            # It may have been submitted all the same: `tick` finds it, or drops it after a while.
            pilot.is_released = True
            raise
        with self._lock:
            self._keep()
        log.info("pilot %d is to bring %s", pilot.job_id, place.node.name)

    def sleep(self, node: int) -> None:
        """Cancel its pilot; nothing runs there."""
        with self._lock:
            pilot = self._pilots.get(node)
            if pilot is None:
                return
            pilot.is_released = True
            self._keep()
        commands.cancel([pilot.name])

    def coming(self) -> frozenset[int]:
        """Pilots that wait for their nodes."""
        return frozenset(n for n, pilot in tuple(self._pilots.items()) if self._places[n].link is None)

    def leaving(self) -> frozenset[int]:
        """Pilots that near their end."""
        return self._leaving

    def shutdown(self) -> None:
        """Cancel all pilot jobs."""
        names = [pilot.name for pilot in self._pilots.values()]
        if names:
            commands.cancel(names)

    def _made_up(self, node: int) -> list[str]:
        if not self.is_fake:
            return []
        pool, first = self._pools[node], sum(pool.gpus for pool in self._pools[:node])
        return ["--fake-gpus", str(pool.gpus), "--fake-model", pool.model, "--fake-first", str(first)]

    def _save(self, number: int | None) -> None:
        self._facts.keep(_PILOTS, {
            "site": self._site,
            "places": {
                place.node.name: {
                    "identity": place.identity,
                    "pilot": None if number not in self._pilots else self._pilots[number].saved(),
                }
                for number, place in enumerate(self._places)
            },
        })  # fmt: skip

    # ---- as time passes ----

    def tick(self) -> None:
        """Who was silent for too long is given up; and what Slurm says of the pilots."""
        super().tick()
        if time.monotonic() - self._looked_s < self._look_s or not self._pilots:
            self._leaving = self._leaving & self._pilots.keys()
            return
        try:
            rows = commands.jobs(f"fairlead-{self._site}-")
        except EngineError as error:
            log.warning("Slurm is not heard of, so nothing is known of pilots: %s", error.message)
            self._looked_s = time.monotonic()
            return
        self._looked_s = time.monotonic()
        leaving: set[int] = set()
        for number, pilot in tuple(self._pilots.items()):
            self._follow(number, pilot, rows.get(pilot.name), leaving)
        before, self._leaving = self._leaving, frozenset(leaving)
        for number in self._leaving - before:
            self._on_news(number)

    def _follow(self, number: int, pilot: Pilot, row: commands.JobRow | None, leaving: set[int]) -> None:
        place = self._places[number]
        if row is not None and not pilot.job_id:
            pilot.job_id = row.job_id
        is_gone = row.is_over if row is not None else time.monotonic() - pilot.submitted_s > _UNKNOWN_S
        if not place.identity:
            if is_gone:
                self._drop(number, pilot, row)
            elif pilot.is_released:
                commands.cancel([pilot.name])
            return
        link = place.link
        is_here = link is not None and link.latest is not None
        if is_gone and not is_here:
            if row is not None and row.was_ended and self._kills_all:
                self.free(number, f"its pilot {pilot.job_id} is {row.state.lower()}")
            return  # else its last word, or the end of its lease, settles it
        is_late = row is not None and row.left_s is not None and row.left_s < self._handover_s
        if is_gone or is_late or (pilot.is_released and is_here):
            leaving.add(number)
            latest = None if link is None else link.latest
            if latest is not None and all(one["state"] in ("ended", "lost") for one in latest["attempts"]):
                pilot.is_released = True
                commands.cancel([pilot.name])

    def free(self, number: int, why: str) -> None:
        """The node is gone, and its pilot with it, whatever Slurm makes of that."""
        pilot = self._pilots.pop(number, None)
        self._places[number].token_hash = ""
        super().free(number, why)
        if pilot is not None:
            try:
                commands.cancel([pilot.name])
            except EngineError as error:
                log.warning("pilot %d may still be there: %s", pilot.job_id, error.message)

    def _drop(self, number: int, pilot: Pilot, row: commands.JobRow | None) -> None:
        """A pilot that ended before its agent ever came."""
        how = "unknown to Slurm" if row is None else row.state.lower()
        (log.info if pilot.is_released else log.warning)(
            "pilot %d for %s is %s, and never came", pilot.job_id, self._places[number].node.name, how
        )
        with self._lock:
            self._pilots.pop(number, None)
            self._places[number].token_hash = ""
            self._keep()
        self._on_news(number)


def make(site: Site) -> AgentEngine:
    """The engine of `fairlead up --engine slurm`, as configured."""
    wanted = site.config.slurm
    if not wanted.pools:
        hint = "for example [slurm.pools.a100] nodes = 8, gpus = 4, model = 'A100', partition = 'gpu'"
        raise InputError("engine.name is slurm, and slurm.pools names no nodes", hint=hint)
    agent = [wanted.python or sys.executable, "-m", "fairlead.node.http.server"]
    agent += ["--guard", json.dumps(site.guard, sort_keys=True), "--limits", json.dumps(site.limits, sort_keys=True)]
    source = SlurmNodes(
        site.facts,
        site.door,
        {name: Pool(**{**pool.model_dump(), "options": tuple(pool.options)}) for name, pool in wanted.pools.items()},
        agent=[*agent, "--cgroup", site.config.engine.cgroup],
        fake=site.config.engine.fake_gpus > 0,
        setup=wanted.setup,
        folder=wanted.folder,
        handover_s=wanted.handover_s,
        look_s=wanted.look_s,
        boot_s=site.wake_s,
    )
    return AgentEngine(source, knows=site.store.knows, terms=site.terms)
