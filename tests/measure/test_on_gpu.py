"""Measurements on GPUs, without one: a made-up meter, and commands that only print."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from fairlead.errors import InputError, RunError
from fairlead.measure import import_runs
from fairlead.measure.on_gpu import kernels, trials
from fairlead.measure.on_gpu.trials import Watching
from fairlead.measure.on_gpu.variability import CLASSES, measure_here, time_gpu
from fairlead.measure.on_gpu.watched import Command, Watched, watch
from fairlead.model.interference import Interference
from fairlead.model.profile import GENERIC
from fairlead.model.profile_json import load_profiles, profiles_as_toml
from fairlead.node.gpu.fake_gpus import FakeMeter
from fairlead.policy.sizing.type_tables import parse_types

TICK = "import sys, time\nwhile True: time.sleep(float(sys.argv[1])); print('step', flush=True)"
QUICK = Watching(warm_steps=2, seconds=0.6)


def ticking(name: str, step_s: float = 0.02) -> Command:
    return Command(name, (sys.executable, "-S", "-c", TICK, str(step_s)))


def test_steps_watts_and_joules_of_a_command() -> None:
    meter = FakeMeter(1)
    meter.set_load(0, 1, 0.5)
    uuid = meter.gpus[0].uuid
    seen = watch([ticking("a")], meter, [uuid], pattern="step", warm_steps=2, seconds=1.0)
    assert seen.step_s[0] == pytest.approx(0.022, rel=0.4)
    assert seen.watts == pytest.approx(meter.read()[0].power_w, rel=0.05)
    assert seen.joules is not None
    assert seen.joules_per_step == pytest.approx(seen.joules / seen.steps[0])
    assert seen.means["utilisation_frac"] == pytest.approx(0.5)


def test_jobs_alone_and_together_make_an_interference_table() -> None:
    meter = FakeMeter(1)
    found = trials.colocation([ticking("a"), ticking("b", 0.03)], meter, meter.gpus[0].uuid, QUICK, None)
    assert [(t.names, t.way) for t in found] == [(("a",), "alone"), (("b",), "alone"), (("a", "b"), "sliced")]
    table = trials.interference(found, "sliced")
    ((names, measured),) = list(table)
    assert names == ("a", "b")
    assert all(0.3 < speed <= 1.0 for speed in measured.speeds)
    assert len(Interference.from_dict(json.loads(json.dumps(table.to_dict())))) == 1


def test_what_a_command_used_alone_is_a_profile(tmp_path: Path) -> None:
    means: dict[str, float | None] = {
        "utilisation_frac": 0.8, "sm_activity_frac": 0.3, "sm_occupancy_frac": 0.2, "dram_activity_frac": 0.25,
        "memory_used_mib": 14_000.0,
    }  # fmt: skip
    alone = trials.Trial(('an "odd" name',), "alone", Watched(3.0, (150.0,), 1200.0, means))
    made = trials.profile(alone, 140_000.0, {"widths": [1.0, 2.0], "speedups": [1.0, 1.8]})
    assert (made.activity_frac, made.memory_mib, made.speedup(2)) == (0.8, 14_000.0, 1.8)
    assert made.solo is not None
    assert made.solo.memory_frac == pytest.approx(0.1)
    path = tmp_path / "profiles.toml"
    path.write_text(profiles_as_toml([made, GENERIC]), encoding="utf-8")
    assert load_profiles(path) == [made, GENERIC]
    unknown = trials.Trial(("a",), "alone", Watched(3.0, (150.0,), None, dict.fromkeys(means)))
    assert trials.profile(unknown, 140_000.0) == replace(GENERIC, name="a")


def test_scaling_gives_what_a_job_type_needs(tmp_path: Path) -> None:
    meter = FakeMeter(2)
    code = "import sys, time\nn = int(sys.argv[1])\nwhile True: time.sleep(0.04 / n); print('step', flush=True)"
    found = trials.scaling(Command("a", (sys.executable, "-S", "-c", code, "{gpus}")), meter, QUICK, [1, 2])
    curve = trials.speedups(found)
    assert curve["widths"] == [1.0, 2.0]
    assert curve["speedups"][0] == 1.0
    assert 1.2 < curve["speedups"][1] < 2.5
    path = tmp_path / "types.toml"
    speedup = min(curve["speedups"][1], 2.0)
    head = '[[type]]\nname = "a"\narrival_rate_per_s = 0.001\nmean_size_s = 100\nwidths = [1, 2]\n'
    path.write_text(f"{head}speedups = [1, {speedup}]\n")
    assert parse_types(path.read_text(), str(path), 4.0)
    with pytest.raises(InputError, match="from 1 to 2"):
        trials.scaling(ticking("a"), meter, QUICK, [1, 4])


def test_a_command_that_fails_or_never_steps_is_told_by_name() -> None:
    meter = FakeMeter(1)
    bad = Command("bad", (sys.executable, "-c", "exit('no data')"))
    with pytest.raises(RunError, match="bad ended with 1 before it was measured: no data"):
        watch([bad], meter, [], pattern="s", warm_steps=1, seconds=1)
    with pytest.raises(RunError, match="silent made 0 of 1 steps"):
        watch(
            [Command("silent", ("sleep", "30"))], meter, [], pattern="s", warm_steps=1, seconds=1, timeout_s=0.2
        )  # fmt: skip
    with pytest.raises(RunError, match="No such file"):
        watch([Command("none", ("/no/such/command",))], meter, [], pattern="s", warm_steps=1, seconds=1)


def test_timed_kernels_become_a_profile(tmp_path: Path) -> None:
    gpus = FakeMeter(3).gpus

    def timed(uuid: str, repeats: int) -> dict[str, list[float]]:
        slow = 1.2 if uuid.endswith("2") else 1.0
        return {suite: [slow * 0.01 * (1 + 0.001 * i) for i in range(repeats)] for suite in kernels.SUITES}

    runs = measure_here(gpus, tmp_path / "here.json", 5, node="n0", timed=timed)
    found = import_runs([runs], classes=CLASSES)
    assert found.cluster.gpus == 3
    assert found.runs == {"A": 15, "B": 15, "C": 15}
    assert list(found.variability.scores["A"]) == pytest.approx([1.0, 1.0, 1.2])


@pytest.mark.skipif(find_spec("torch") is not None, reason="PyTorch is here")
def test_without_pytorch_it_says_so() -> None:
    with pytest.raises(RunError, match="without PyTorch"):
        kernels.load_torch()
    with pytest.raises(RunError, match="GPU-none: GPUs cannot be measured without PyTorch"):
        time_gpu("GPU-none", 1)
