from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

import fairlead as package
from fairlead.errors import InputError
from tests.cli.conftest import assert_a_clear_error
from tests.patience import PATIENCE_S

EXAMPLES = Path(__file__).parents[2] / "examples"

Live = Callable[..., Result]
OVER = ("finished", "parked", "cancelled")


def data(done: Result) -> Any:
    assert done.exit_code == 0, (done.stdout, done.stderr, done.exception)
    return json.loads(done.stdout)


def submitted(live: Live, *words: str) -> int:
    done = live("submit", *words)
    assert done.exit_code == 0, done.stderr
    return int(done.stdout)


def awaited(live: Live, job: int, *states: str) -> dict[str, Any]:
    until_s = time.monotonic() + PATIENCE_S
    while True:
        found: dict[str, Any] = data(live("status", job, "--json"))
        if found["state"] in states or time.monotonic() > until_s:
            assert found["state"] in states, found
            return found
        time.sleep(0.05)


@pytest.fixture
def sleeper(live: Live, request: pytest.FixtureRequest) -> Iterator[int]:
    """A job that runs until it is cancelled."""
    job = submitted(live, "--name", f"sleeper-{request.node.name[:60]}", "--grace", "0s", "--", "sleep", "600")
    yield job
    if awaited(live, job, "running", "held", "waiting", *OVER)["state"] not in OVER:
        assert live("cancel", job).exit_code == 0


def test_submit_prints_the_number_and_says_how_to_follow(live: Live) -> None:
    done = live("submit", "--", "true")
    assert done.stdout.strip().isdigit()
    assert f"fairlead logs -f {done.stdout.strip()}" in done.stderr


def test_a_job_runs_where_and_with_what_it_was_submitted(
    live: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("INHERITED", "from-here")
    monkeypatch.setenv("NOT_ASKED_FOR", "secret")
    script = 'echo "$PWD $INHERITED $GIVEN [$NOT_ASKED_FOR]"; echo complaint >&2'
    done = live("submit", "--wait", "--env", "INHERITED", "--env", "GIVEN=a=b", "--", "sh", "-c", script)
    assert done.exit_code == 0, done.stderr
    job = int(done.stdout)
    assert live("logs", "--stdout", job).stdout == f"{tmp_path} from-here a=b []\n"
    assert live("logs", job, "--stderr").stdout == "complaint\n"


def test_options_of_the_command_need_no_dashes_before_it(live: Live) -> None:
    done = live("submit", "--wait", "--json", "-g", "2", "sh", "-c", "exit 0", "--epochs", "3")
    (job,) = data(done)["jobs"]
    assert (job["state"], job["exit_code"], job["name"]) == ("finished", 0, "sh")
    found = data(live("status", job["id"], "--json"))
    assert (found["gpus"], found["command"]) == (2, ["sh", "-c", "exit 0", "--epochs", "3"])


def test_who_waits_for_a_job_that_fails_gets_status_1(live: Live) -> None:
    done = live("submit", "--wait", "--retries", "0", "--", "sh", "-c", "echo at a loss >&2; exit 3")
    assert done.exit_code == 1
    assert "parked, status 3" in done.stderr
    job = int(done.stdout)
    assert data(live("status", job, "--json"))["detail"] == "at a loss"
    page = live("status", job).stdout
    assert "last words" in page
    assert "parked" in page


def test_everything_that_is_asked_for_arrives(live: Live) -> None:
    words = "--min-gpus 1 --max-gpus 4 -g 2 --mem 20GiB --profile resnet50 --deadline 6h --estimate 1h30m --hold"
    job = submitted(live, *words.split(), "--priority", "high", "--name", "asked", "--grace", "5s", "--", "true")
    found = data(live("status", "asked", "--json"))
    wanted = {
        "id": job, "state": "held", "gpus": 2, "min_gpus": 1, "max_gpus": 4, "memory_mib": 20480.0,
        "profile": "resnet50", "deadline_s": 21600.0, "estimate_s": 5400.0, "priority": 1,
    }  # fmt: skip
    assert {name: found[name] for name in wanted} == wanted
    assert live("cancel", "asked").exit_code == 0


def test_a_service_has_a_latency_to_keep(live: Live) -> None:
    job = submitted(live, "--service", "--slo", "50ms", "--hold", "--priority", "-2", "--", "true")
    found = data(live("status", job, "--json"))
    assert (found["kind"], found["slo_s"], found["priority"]) == ("service", 0.05, -2)
    assert live("cancel", job).exit_code == 0


def test_an_unknown_profile_is_noted(live: Live) -> None:
    done = live("submit", "--profile", "mine", "--", "true")
    assert done.exit_code == 0
    assert "no profile 'mine' is known" in done.stderr


def test_a_file_may_hold_several_jobs(live: Live, tmp_path: Path) -> None:
    file = tmp_path / "jobs.toml"
    file.write_text('[[job]]\nname = "first"\ncommand = ["true"]\n[[job]]\ncommand = ["pwd"]\ncwd = "."\n')
    found = data(live("submit", "--wait", "--json", file))["jobs"]
    assert [(job["name"], job["state"]) for job in found] == [("first", "finished"), ("pwd", "finished")]
    assert live("logs", found[1]["id"]).stdout == f"{tmp_path}\n"
    assert len(live("submit", file).stdout.split()) == 2


def test_the_list_has_jobs_that_are_not_over_unless_asked_for_all(live: Live, sleeper: int) -> None:
    over = submitted(live, "--wait", "--", "true")
    awaited(live, sleeper, "running")
    active = [job["id"] for job in data(live("jobs", "--json"))["jobs"]]
    assert sleeper in active
    assert over not in active
    everything = data(live("jobs", "--all", "--json"))["jobs"]
    assert {sleeper, over} <= {job["id"] for job in everything}
    shown = live("jobs").stdout
    assert f"{sleeper}  sleeper" in shown
    assert "node-" in shown
    assert "running" in shown


def test_the_list_can_be_narrowed(live: Live, sleeper: int) -> None:
    awaited(live, sleeper, "running")
    user = data(live("status", sleeper, "--json"))["user"]
    assert sleeper in [job["id"] for job in data(live("jobs", "--state", "running,held", "--json"))["jobs"]]
    assert sleeper in [job["id"] for job in data(live("jobs", "--user", user, "--json"))["jobs"]]
    assert data(live("jobs", "--user", "nobody-at-all", "--json"))["jobs"] == []
    assert len(data(live("jobs", "--all", "--most", "1", "--json"))["jobs"]) == 1
    assert "no jobs" in live("jobs", "--user", "nobody-at-all").stderr
    mistyped = live("jobs", "--state", "runing")
    assert_a_clear_error(mistyped, "unknown state 'runing'")
    assert "did you mean 'running'? known: backing-off, cancelled, finished" in mistyped.stderr


def test_watching_needs_a_terminal(live: Live) -> None:
    assert_a_clear_error(live("jobs", "--watch"), "--watch needs a terminal")


def test_a_job_is_held_released_and_cancelled(live: Live, sleeper: int) -> None:
    awaited(live, sleeper, "running")
    assert data(live("hold", sleeper, "--json")) == {"jobs": [{"id": sleeper, "wish": "hold"}]}
    awaited(live, sleeper, "held")
    assert "is held" in live("explain", sleeper).stdout
    assert "waits for GPUs again" in live("release", sleeper).stderr
    awaited(live, sleeper, "running")
    assert "is being cancelled" in live("cancel", sleeper).stderr
    awaited(live, sleeper, "cancelled")
    assert_a_clear_error(live("cancel", sleeper), "there is nothing to cancel")
    assert_a_clear_error(live("release", sleeper), "is cancelled")


def test_what_is_wrong_with_one_job_keeps_none_of_the_others(live: Live, sleeper: int) -> None:
    done = live("cancel", "no-such-name", sleeper, "987654")
    assert done.exit_code == 2
    assert "no job is called 'no-such-name'" in done.stderr
    assert "there is no job 987654" in done.stderr
    awaited(live, sleeper, "cancelled")


def test_why_a_job_runs_or_waits_is_explained(live: Live, sleeper: int) -> None:
    awaited(live, sleeper, "running")
    found = data(live("explain", sleeper, "--json"))
    assert (found["id"], found["state"]) == (sleeper, "running")
    assert "it was placed on node-" in live("explain", sleeper).stdout
    waiting = submitted(live, "-g", "8", "--priority", "high", "--", "true")
    done = live("explain", waiting)
    assert done.exit_code == 0
    assert f"job {waiting} is waiting" in done.stdout
    assert "needs 8 GPUs" in done.stdout
    assert "is a guess" in done.stdout
    expected = data(live("explain", waiting, "--json"))["expected"]
    assert expected["starts_in_s"] > 0
    assert expected["is_guess"]
    assert live("cancel", waiting).exit_code == 0


def test_a_job_file_can_be_tried_before_it_is_submitted(live: Live) -> None:
    found = data(live("whatif", "--job", str(EXAMPLES / "job.toml"), "--json"))
    before, after = ({job["name"] for job in found[one]["jobs"]} for one in ("as_is", "what_if"))
    assert after - before == {"small", "elastic"}


def test_the_last_lines_of_a_log_and_all_attempts_can_be_read(live: Live) -> None:
    job = submitted(live, "--wait", "--", "sh", "-c", "for i in 1 2 3 4 5; do echo line $i; done")
    assert live("logs", job, "--tail", "2").stdout == "line 4\nline 5\n"
    assert live("logs", job, "--tail", "0").stdout == ""
    assert live("logs", job, "--attempt", "1").stdout.count("line") == 5
    assert_a_clear_error(live("logs", job, "--attempt", "9"), "there is no attempt 9")


def test_both_streams_are_printed_in_the_order_of_time_unless_one_is_named(live: Live) -> None:
    # A word is written when the one before it has been taken from its pipe, so their order is certain.
    script = (
        "import array, fcntl, sys, termios, time\n"
        "for stream, word in ((1, 'out'), (2, 'err'), (1, 'out again')):\n"
        "    with open(stream, 'w', closefd=False) as file: file.write(word + '\\n')\n"
        "    left = array.array('i', [1])\n"
        "    while left[0]: fcntl.ioctl(stream, termios.FIONREAD, left); time.sleep(0.001)\n"
    )
    job = submitted(live, "--wait", "--", sys.executable, "-c", script)
    assert live("logs", job).stdout == "out\nerr\nout again\n"
    assert live("logs", job, "--stdout").stdout == "out\nout again\n"
    assert live("logs", job, "--stderr").stdout == "err\n"
    assert live("logs", job, "--since", "1d").stdout == "out\nerr\nout again\n"
    assert_a_clear_error(live("logs", job, "--stdout", "--stderr"), "exclude each other")
    assert_a_clear_error(live("logs", job, "--since", "soon"), "--since is 'soon'")
    path = Path(data(live("status", job, "--json"))["output_path"])
    assert (path / "stderr.log").read_text() == "err\n"
    assert str(path) in live("status", job).stdout.replace("\n", "")


def test_a_log_with_nothing_in_it_says_why(live: Live) -> None:
    waits = submitted(live, "--hold", "--", "true")
    assert "is held and has not run yet; fairlead explain" in live("logs", waits).stderr
    silent = submitted(live, "--wait", "--", "true")
    assert f"job {silent} has not written anything" in live("logs", silent).stderr


def test_a_log_is_followed_to_its_end(live: Live) -> None:
    job = submitted(live, "--", "sh", "-c", "echo first; sleep 1; echo last")
    done = live("logs", "-f", job)
    assert done.exit_code == 0
    assert done.stdout == "first\nlast\n"
    assert awaited(live, job, *OVER)["state"] == "finished"


def test_a_name_that_two_jobs_have_is_no_name(live: Live) -> None:
    jobs = [submitted(live, "--name", "twins", "--hold", "--", "true") for _ in range(2)]
    done = live("status", "twins")
    assert_a_clear_error(done, "2 jobs are called 'twins'")
    assert f"{jobs[0]}, {jobs[1]}" in done.stderr
    assert live("cancel", *jobs).exit_code == 0


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--deadline", "6", "--", "true"], "--deadline is '6'"),
        (["--mem", "20", "--", "true"], "--mem is '20'"),
        (["--slo", "fast", "--", "true"], "--slo is 'fast'"),
        (["--slo", "50ms", "--", "true"], "slo_s is for services"),
        (["--priority", "urgent", "--", "true"], "priority 'urgent'"),
        (["-g", "0", "--", "true"], "gpus is 0"),
        (["-g", "99", "--", "true"], "99 GPUs asked for"),
        (["--mem", "999GiB", "--", "true"], "memory"),
        (["--min-gpus", "4", "--max-gpus", "2", "--", "true"], "4 to 2 GPUs"),
        (["--env", "NOT_SET_ANYWHERE", "--", "true"], "--env NOT_SET_ANYWHERE: there is no such variable"),
        (["--env", "LD_PRELOAD=x", "--", "true"], "LD_PRELOAD is set by the scheduler"),
        (["absent.toml"], "absent.toml: no such file"),
        (["-g", "2", "job.toml"], "gpus belongs into it"),
        (["job.toml", "--wait"], "'--wait' follows it"),
    ],
)
def test_a_mistake_in_a_submission_is_named(live: Live, words: list[str], named: str) -> None:
    assert_a_clear_error(live("submit", *words), named)


@pytest.mark.parametrize("verb", ["status", "logs", "explain", "cancel", "hold", "release"])
def test_a_job_that_is_not_there_is_named(live: Live, verb: str) -> None:
    assert_a_clear_error(live(verb, "987654"), "there is no job 987654")


def test_python_submits_too(live: Live, tmp_path: Path) -> None:
    job = package.submit(["pwd"], gpus=2, name="from-python", cwd=tmp_path, priority="high")
    found = awaited(live, job, *OVER)
    assert (found["state"], found["name"], found["gpus"], found["priority"]) == ("finished", "from-python", 2, 1)
    assert live("logs", job).stdout == f"{tmp_path}\n"
    with pytest.raises(InputError, match="gpus is 0"):
        package.submit(["true"], gpus=0)
    with pytest.raises(InputError, match="expected a list of words"):
        package.submit("true")
