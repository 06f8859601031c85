"""Jobs that ask for a part of a GPU, with real processes on fake GPUs."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from fairlead.errors import InputError
from fairlead.live.jobs.admission import check_fit
from fairlead.live.jobs.request import JobRequest
from fairlead.live.jobs.states import State
from fairlead.model.catalogue import BUILT_IN
from fairlead.model.cluster import parse_shape
from fairlead.policy import registry
from tests.live.rig import Rig


def test_parts_run_beside_each_other_and_the_next_one_when_there_is_room() -> None:
    rig = Rig("fifo", fake_gpus=1)
    try:
        first, second = rig.submit("sleep", 60, gpus=0.3), rig.submit("sleep", 60, gpus=0.6)
        third = rig.submit("true", gpus=0.2)
        for job_id in (first, second):
            rig.until_state(job_id, State.RUNNING)
        rig.until(lambda: third in rig.controller.driver.view.waiting, "the third waits")
        made = [rig.attempts(job_id)[0] for job_id in (first, second)]
        assert [(one["gpus"], one["shared"], one["sm_share"]) for one in made] == [("[0]", 1, 0.3), ("[0]", 1, 0.6)]
        held = rig.controller.driver.view
        assert sum(state.held_gpus for state in held.running.values()) == pytest.approx(0.9)
        rig.stop()
        rig.start()  # parts are what they were when a controller comes back
        assert not rig.attempts(third)
        rig.wish(second, "cancel")
        rig.until_state(third, State.FINISHED)
        assert rig.job(first)["attempt"] == 1
    finally:
        rig.close()


def test_a_request_below_one_is_a_part_of_one_gpu() -> None:
    asked = JobRequest.model_validate({"command": ["true"], "gpus": 0.3})
    assert (asked.asked_gpus, asked.gpu_frac) == (1, 0.3)
    assert asked == JobRequest(command=["true"], gpus=1, gpu_frac=0.3)
    assert JobRequest.model_validate({"command": ["true"], "gpus": 2.0}).asked_gpus == 2


@pytest.mark.parametrize("gpus", [0.0, -0.5, 1.5, float("nan"), float("inf")])
def test_other_broken_numbers_are_refused(gpus: float) -> None:
    with pytest.raises(ValidationError):
        JobRequest.model_validate({"command": ["true"], "gpus": gpus})


@pytest.mark.parametrize("more", [{"gpus": 2}, {"min_gpus": 1, "max_gpus": 2}])
def test_a_part_of_several_gpus_is_refused(more: dict[str, int]) -> None:
    with pytest.raises(ValidationError, match="who asks for a part of a GPU runs on one"):
        JobRequest.model_validate({"command": ["true"], "gpu_frac": 0.5, **more})


def test_a_policy_that_has_no_parts_says_so_at_submission() -> None:
    asked, stack = JobRequest.model_validate({"command": ["true"], "gpus": 0.5}), registry.build("sizing=pollux")
    with pytest.raises(InputError, match=r"a part of a GPU asked for, and the policy is .*moves whole GPUs"):
        check_fit(asked, parse_shape("1x2"), stack, BUILT_IN)
