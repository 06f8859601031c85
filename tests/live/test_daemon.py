from __future__ import annotations

import fcntl
import getpass
import json
import os
import re
from pathlib import Path

import pytest

from fairlead.errors import InputError
from fairlead.live import assembly
from fairlead.live.config import Jobs, ServerTable, load
from fairlead.live.daemon import _keep_token, check_account, check_tls, warn_unless_passable, with_defaults
from fairlead.live.home import Home, read
from fairlead.live.jobs.request import JobRequest
from fairlead.live.storage.database import Database
from fairlead.live.storage.tokens import Role, Tokens


def test_one_at_a_time_holds_a_home_and_the_second_is_told_who(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.prepare()
    assert home.holder() is None
    with home.held():
        holder = home.holder()
        assert holder is not None
        assert holder[0] == os.getpid()
        home.write(home.url, "http://there\n")
        with pytest.raises(InputError, match=f"process {os.getpid()}, at http://there"), home.held():
            pass
        assert home.holder() == holder
    with home.held():
        pass


def test_a_home_that_was_let_go_has_no_holder(tmp_path: Path) -> None:
    home = Home(tmp_path)
    with pytest.raises(ZeroDivisionError), home.held():
        raise ZeroDivisionError
    assert home.holder() is None
    (tmp_path / "lock").write_text("no json")
    assert home.holder() is None


def test_where_a_controller_answered_that_was_killed_is_forgotten(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.write(home.url, "http://gone")
    with home.held():
        assert read(home.url) == ""


def test_a_home_is_for_its_owner_unless_jobs_of_others_pass_through_it(tmp_path: Path) -> None:
    home = Home(tmp_path / "a" / "home")
    home.prepare()
    assert home.path.stat().st_mode & 0o777 == 0o700
    with home.held(for_others=True):
        home.prepare()
        assert home.path.stat().st_mode & 0o777 == 0o711
    with home.held():
        assert home.path.stat().st_mode & 0o777 == 0o700
    home.write(home.token, "secret")
    assert home.token.stat().st_mode & 0o777 == 0o600
    assert (read(home.token), read(home.url)) == ("secret", "")


def test_the_administrators_token_is_kept_as_long_as_it_stands(tmp_path: Path) -> None:
    home = Home(tmp_path)
    database = Database(home.database)
    tokens = Tokens(database)
    _keep_token(home, tokens)
    first = read(home.token)
    found = tokens.find(first)
    assert found is not None
    assert (found.user, found.role) == (getpass.getuser(), Role.ADMIN)
    _keep_token(home, tokens)
    assert read(home.token) == first
    tokens.revoke(found.token_id)
    _keep_token(home, tokens)
    assert read(home.token) != first
    assert tokens.find(read(home.token)) is not None
    database.close()


def test_what_a_request_leaves_open_is_as_configured() -> None:
    jobs = Jobs(retries=7, grace_s=1.0)
    open_ = with_defaults(JobRequest(command=["true"]), jobs)
    assert (open_.retries, open_.grace_s) == (7, 1.0)
    said = with_defaults(JobRequest(command=["true"], retries=3), jobs)
    assert (said.retries, said.grace_s) == (3, 1.0)
    assert json.loads(said.model_dump_json(exclude_defaults=True)) == {"command": ["true"], "grace_s": 1.0}


def test_tls_files_that_cannot_be_used_are_named_before_anything_is_started(tmp_path: Path) -> None:
    (tmp_path / "bad.pem").write_text("nonsense")
    for cert in ("bad.pem", "absent.pem"):
        server = ServerTable(tls_cert=str(tmp_path / cert), tls_key=str(tmp_path / cert))
        with pytest.raises(InputError, match=cert):
            check_tls(server)
    check_tls(ServerTable())


def test_jobs_that_run_as_their_users_need_accounts() -> None:
    check_account(getpass.getuser())
    with pytest.raises(InputError, match="no account 'nobody-like-this'") as raised:
        check_account("nobody-like-this")
    assert "as_submitter" not in str(raised.value.hint)


def test_a_home_that_other_accounts_cannot_reach_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "closed").mkdir(mode=0o700)
    warn_unless_passable(Home(tmp_path / "closed" / "home"))
    assert "cannot pass through" in caplog.text
    caplog.clear()
    warn_unless_passable(Home(Path("/home-of-ours")))
    assert caplog.text == ""


def test_only_root_can_run_jobs_as_their_users(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, wanted = load(), load(None, {"FAIRLEAD_ENGINE_AS_SUBMITTER": "true"})
    refused = load(None, {"FAIRLEAD_ENGINE_AS_SUBMITTER": "false"})
    said = load(None, {"FAIRLEAD_ENGINE_AS_SUBMITTER": "everyone-is-root"})
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert [assembly.runs_as_submitter(one) for one in (plain, wanted, said)] == [True, True, False]
    with pytest.raises(InputError, match="would run as root") as raised:  # a plain false has not said what it means
        assembly.runs_as_submitter(refused)
    assert "everyone-is-root" in str(raised.value.hint)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert [assembly.runs_as_submitter(one) for one in (plain, refused, said)] == [False, False, False]
    with pytest.raises(InputError, match="only root can do"):
        assembly.runs_as_submitter(wanted)


def test_profiles_can_be_declared_in_a_file(tmp_path: Path) -> None:
    examples = Path(__file__).parents[2] / "examples"
    config = load(None, {}, {"engine.profiles": str(examples / "profiles.toml")})
    job = JobRequest(command=["train"], profile="My-BERT").job(1, "ann", 0.0, assembly.catalogue_of(config))
    assert (job.profile.app_class, job.memory_mib, job.profile.speedup(1)) == ("B", 18000.0, 1.0)
    assert job.profile.speedup(16) == pytest.approx(9.143, abs=1e-3)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[profile]\nname = 'a'", "expected [[profile]] tables"),
        ("[[profile]]\nnam = 'a'", "nam"),
        ("[[profile]]\nname = 'a'\nactivity_frac = 2", "activity_frac"),
        ("[[profile]]\nname = 'a'\n[[profile]]\nname = 'A'", "two profiles"),
        ("[[profile]", "not valid TOML"),
    ],
)
def test_a_mistake_in_it_is_named(text: str, named: str, tmp_path: Path) -> None:
    path = tmp_path / "profiles.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=re.escape(named)):
        assembly.catalogue_of(load(None, {}, {"engine.profiles": str(path)}))


def test_a_deleted_lock_file_lets_no_second_controller_in_and_hides_nobody(tmp_path: Path) -> None:
    home = Home(tmp_path)
    with home.held():
        holder = home.holder()
        (tmp_path / "lock").unlink()
        with pytest.raises(InputError, match=f"process {os.getpid()}"), home.held():
            pass
        assert home.holder() == holder, "so that `fairlead down` finds it"
        (tmp_path / "lock").write_text("")
        with pytest.raises(InputError, match="a controller runs in"), home.held():
            pass
    with home.held():
        pass


def test_a_controller_of_before_folders_were_locked_is_noticed(tmp_path: Path) -> None:
    with (tmp_path / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(InputError, match="a controller runs in"), Home(tmp_path).held():
            pass
    with Home(tmp_path).held():
        pass
