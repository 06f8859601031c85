"""EaCO: training beside training to save energy, with predictions, early observation and undo."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

from fairlead.model.interference import Interference, built_in
from fairlead.model.placement import Placement
from fairlead.policy.plan import DEADLINE_AT_RISK, EXPLAINED, NO_FREE_GPU, OVER_MEMORY, OVER_UTILISATION
from fairlead.policy.pool import Pool
from fairlead.policy.saved_state import reading
from fairlead.policy.sharing.groups import Group, GroupIndex, described, profiles_of
from fairlead.policy.stages import Sharing, option
from fairlead.policy.view import JobState, View


@dataclass
class Trial:
    """A provisional placement: a job beside others, until every one of them has done an epoch there."""

    joiner: int
    epochs: dict[int, int]
    """Of each job on the set, the epochs it had done when the trial began."""
    joiner_epochs: int
    """Epochs of the joiner when it was last looked at."""
    failed: bool = False


@dataclass
class Eaco(Sharing):
    """Jobs join GPUs that others under-use, the fullest that still has room first (EaCO, arXiv 2412.08294).

    Objective: least energy, such that every deadline is met and every GPU stays under its thresholds. For a job:

    1. Candidates are GPUs whose utilisation with the job stays under `utilisation` and whose peak memory with it under
       `memory`, with fewer than `jobs` jobs, none of them urgent and none on trial. They are taken by falling
       utilisation: all GPUs with the same jobs on them together if they are enough, else gathered node by node until
       one node has enough. Empty GPUs come last.
    2. The history predicts everyone's speed: the very set if it was seen, else the product of pairs, else a prior on
       activity. If all would meet their deadlines the job is placed there, on trial; nobody else joins meanwhile. For a
       set that was never seen, all must also have time to spare for a trial that goes as badly as it can: n jobs that
       each keep `floor` of an n-th of their speed until the new one's epoch ends. A job that would be late alone too
       has no say.
    3. When every job of the set has done an epoch together, what was measured goes into the history. If all deadlines
       hold, the placement is final. If not, or as soon as an epoch's end shows it, the job leaves at the end of its own
       epoch, when nothing is lost, and is not offered that company again.

    Jobs of priority `high` and above, and services, get GPUs to themselves. Without deadline a job is never late.
    Epochs to come are those that jobs report. At most `tries` groups are looked at for a job in one decision.

    When not to use it: where jobs keep their GPUs busy, or must not slow down by a few per cent.
    """

    utilisation: float = option(0.8, "a GPU's utilisation with the new job stays at or under this")
    memory: float = option(0.9, "the part of a GPU's memory that the peaks of all its jobs may fill")
    jobs: int = option(3, "jobs on one GPU")
    high: int = option(1, "priority from which a job gets GPUs to itself")
    floor: float = option(0.18, "part of its fair share that a job keeps at the worst; the least among Gavel's pairs")
    tries: int = option(256, "groups that are looked at for one job")
    history: str = option("none", "what is known at the start: none, eaco or gavel-v100")
    shares: ClassVar[bool] = True
    declared_epochs: ClassVar[bool] = True
    _trials: dict[int, Trial] = field(default_factory=dict, init=False, repr=False)
    """By joiner."""
    _on_trial: set[int] = field(default_factory=set, init=False, repr=False)
    """Everyone on a set that is on trial."""
    _rejected: dict[int, set[Group]] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        if not (self.utilisation > 0.0 and 0.0 < self.memory <= 1.0 and 0.0 < self.floor <= 1.0):
            raise ValueError("utilisation above 0, memory and floor in (0, 1]")
        if self.jobs < 1 or self.tries < 1:
            raise ValueError("jobs and tries at least 1")
        self.learn_from(built_in(self.history))

    @property
    def learnt(self) -> Interference:
        """The history of sets that have run together."""
        return self.known

    def learn_from(self, history: Interference) -> None:
        """Take over a history that was learnt before."""
        self.known = history.copy()
        self._index = GroupIndex(self.known)

    def shared(self, state: JobState) -> bool:
        """Urgent jobs and services don't share."""
        return super().shared(state) and state.job.priority < self.high

    def offers(self, state: JobState, width: int, pool: Pool, view: View) -> Iterable[Pool | Placement]:
        """Shared GPUs by falling utilisation, then empty ones."""
        if self.shared(state):
            yield from self._company(state, width, view)
        if pool.count >= width:
            yield pool

    def _company(self, state: JobState, width: int, view: View) -> Iterable[Pool | Placement]:
        """Groups that hold the job, and sets gathered on a node from several groups, as the walk completes them."""
        self._index.catch_up(view)
        by_node: dict[int, list[int]] = {}
        groups = self._index.at_most(self.utilisation - state.job.profile.activity_frac)
        for group in itertools.islice(groups, self.tries):
            if self._objection(state, group, view) is not None:
                continue
            gpus = sorted(view.groups[group])
            if len(gpus) >= width:
                yield tuple(gpus) if len(gpus) == width else Pool(view.cluster, gpus)
                continue
            for gpu in gpus:
                found = by_node.setdefault(view.cluster.node_of[gpu], [])
                found.append(gpu)
                if len(found) == width:
                    yield tuple(sorted(found))

    def placed(self, state: JobState, gpus: Placement, view: View) -> None:
        """A job that joins others is on trial with them."""
        company = {j for g in gpus for j in view.on_gpu[g]}
        if not company:
            return
        assert view.epochs is not None
        done = {j: view.epochs.done(view.running[j]) for j in sorted(company)}
        own = view.epochs.done(state)
        self._trials[state.job.id] = Trial(state.job.id, {**done, state.job.id: own}, own)
        self._on_trial.update((*company, state.job.id))

    def review(self, view: View) -> tuple[list[JobState], bool]:
        """Finalise what has proved itself, and name who must leave now."""
        leaving, opened = [], False
        for trial in list(self._trials.values()):
            joiner = view.running.get(trial.joiner)
            members = [view.running[j] for j in trial.epochs if j in view.running]
            if joiner is None or len(members) == 1:
                self._close(trial)
                opened = True
                continue
            if not self._all_in_time(members, view):
                trial.failed = True
            if self._ended_epoch(trial, joiner, view) and trial.failed:
                rejected = self._rejected.setdefault(trial.joiner, set())
                rejected.update(tuple(j for j in view.on_gpu[g] if j != trial.joiner) for g in joiner.gpus)
                leaving.append(joiner)
            elif not trial.failed and self._seen_by_all(trial, members, view):
                self._learn(members, view)
                opened = True
            else:
                continue
            self._close(trial)
        for state in view.changes.ended:
            self._rejected.pop(state.job.id, None)
        return leaving, opened

    def wake_s(self, view: View) -> float | None:
        """At the next end of an epoch that a trial waits for."""
        assert view.epochs is not None
        moments = []
        for trial in self._trials.values():
            for job_id, done in trial.epochs.items():
                state = view.running.get(job_id)
                if state is None:
                    if job_id == trial.joiner:
                        moments.append(view.now_s)  # it starts with this very plan: look again when it has
                elif trial.failed or view.epochs.done(state) <= done:
                    moments.append(view.epochs.next_end_s(state))
        return min(moments, default=None)

    def knowledge(self) -> dict[str, Any]:
        """The history, trials under way, and the company that was refused to jobs."""
        trials = [{**asdict(t), "epochs": [[j, done] for j, done in t.epochs.items()]} for t in self._trials.values()]
        rejected = [[job_id, sorted(map(list, groups))] for job_id, groups in self._rejected.items()]
        return {"history": self.known.to_dict(), "trials": trials, "rejected": rejected}

    def recall(self, saved: Mapping[str, Any], view: View) -> None:
        """Of the jobs that are still here. Older controllers saved `groups` too; they follow from the history."""
        with reading("eaco", saved, "history", "groups", "trials", "rejected"):
            self.learn_from(Interference.from_dict(saved["history"], "what was saved of eaco: history"))
            trials = [_trial(t, view) for t in saved["trials"]]
            rejected = {int(j): {tuple(map(int, group)) for group in groups} for j, groups in saved["rejected"]}
        self._trials = {t.joiner: t for t in trials if view.here(t.joiner)}
        self._on_trial = {j for t in self._trials.values() for j in t.epochs}
        self._rejected = {
            j: {group for group in groups if all(map(view.here, group))}
            for j, groups in rejected.items()
            if view.here(j)
        }

    def alike(self, state: JobState) -> Hashable | None:
        """Jobs of one profile and memory, without a deadline and without company that they have failed in."""
        job = state.job
        if job.deadline_s is not None or job.id in self._rejected:
            return None
        return id(job.profile), job.memory_mib, self.shared(state)

    def why_waits(self, state: JobState, width: int, view: View) -> tuple[str, list[tuple[str, str]]]:
        """What speaks against the company that it could have: of that which has room, then of the fullest."""
        if not self.shared(state):
            return super().why_waits(state, width, view)
        self._index.catch_up(view)
        room_frac = self.utilisation - state.job.profile.activity_frac
        found = []
        for group in itertools.islice(self._index.at_most(room_frac), EXPLAINED):
            against = self._objection(state, group, view) or "too-few-gpus"
            found.append((described(group, view.groups[group]), against))
        for group in itertools.islice(self._index.above(room_frac), EXPLAINED - len(found)):
            found.append((described(group, view.groups[group]), OVER_UTILISATION))
        return (found[0][1] if found else NO_FREE_GPU), found

    def _objection(self, state: JobState, group: Group, view: View) -> str | None:
        """Why a job may not join a group that has room for it; None if it may."""
        gpus, job = view.groups[group], state.job
        if len(group) >= self.jobs:
            return "too-many-jobs"
        if not self._on_trial.isdisjoint(group):
            return "on-trial"
        if group in self._rejected.get(job.id, ()):
            return "tried-before"
        if view.drained and not view.drained.isdisjoint(gpus):
            return "gpu-drained"
        company = [view.running[j] for j in group]
        room_mib = self.memory * view.cluster.gpu_model(next(iter(gpus))).memory_mib
        if job.memory_mib + sum(c.job.memory_mib for c in company) > room_mib:
            return OVER_MEMORY
        profiles = [*profiles_of(group, view), job.profile]
        if not self.known.fits(profiles):
            return OVER_MEMORY
        members = (*company, state)
        for i, member in enumerate(members):
            others = profiles[:i] + profiles[i + 1 :]
            if not self._in_time(member, self.known.predict(member.job.profile, others), view):
                return DEADLINE_AT_RISK
            seen = self.known.source(member.job.profile, others) == "set"
            if not seen and not self._survives_trial(member, len(members), job.profile.epoch_s, view):
                return DEADLINE_AT_RISK
        return None

    def _in_time(self, state: JobState, kept_speed: float, view: View) -> bool:
        """Whether a job meets its deadline at that speed."""
        assert view.epochs is not None
        return self._has_time(state, view.epochs.left_s(state) / kept_speed, view)

    def _survives_trial(self, state: JobState, members: int, epoch_s: float, view: View) -> bool:
        """Whether it does if the trial is as bad as can be until the joiner's epoch ends, and is then undone."""
        assert view.epochs is not None
        left_s = view.epochs.left_s(state)
        in_trial_s = min(left_s, epoch_s)
        after = view.epochs.kept_speed(state) if state.gpus else 1.0
        return self._has_time(state, in_trial_s * members / self.floor + (left_s - in_trial_s) / after, view)

    def _has_time(self, state: JobState, need_s: float, view: View) -> bool:
        if state.job.deadline_s is None:
            return True
        assert view.epochs is not None
        time_s = state.job.due_s - view.now_s
        # Who would be late alone as well is not made late by company; else one such job would keep its GPUs for itself.
        return need_s <= time_s or view.epochs.left_s(state) > time_s

    def _all_in_time(self, members: list[JobState], view: View) -> bool:
        assert view.epochs is not None
        return all(self._in_time(m, view.epochs.kept_speed(m), view) for m in members)

    def _ended_epoch(self, trial: Trial, joiner: JobState, view: View) -> bool:
        """Whether this very moment is the end of an epoch of the joiner: the stack is called at each."""
        assert view.epochs is not None
        done = view.epochs.done(joiner)
        ended, trial.joiner_epochs = done > trial.joiner_epochs, done
        return ended

    def _seen_by_all(self, trial: Trial, members: list[JobState], view: View) -> bool:
        assert view.epochs is not None
        return all(view.epochs.done(m) > trial.epochs[m.job.id] for m in members)

    def _learn(self, members: list[JobState], view: View) -> None:
        """Write down what was measured, if it is of one set: beside different company on each GPU a job shows only
        what the worst of it costs.
        """
        assert view.epochs is not None
        gpu = min(members, key=lambda m: len(m.gpus)).gpus[0]
        if {m.job.id for m in members} != set(view.on_gpu[gpu]):
            return
        names = [m.job.profile.name for m in members]
        speeds = [view.epochs.kept_speed(m) for m in members]
        self.known.record(names, speeds, view.epochs.utilisation(gpu))
        self._index.learnt(names)

    def _close(self, trial: Trial) -> None:
        del self._trials[trial.joiner]
        self._on_trial = {j for t in self._trials.values() for j in t.epochs}


def _trial(saved: Mapping[str, Any], view: View) -> Trial:
    epochs = {int(j): int(done) for j, done in saved["epochs"] if view.here(int(j))}
    return Trial(int(saved["joiner"]), epochs, int(saved["joiner_epochs"]), bool(saved["failed"]))
