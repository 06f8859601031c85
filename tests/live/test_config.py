from __future__ import annotations

from pathlib import Path

import pytest

from fairlead.errors import InputError
from fairlead.job.place import LATENCY, LAUNCH, REPORT, STOP
from fairlead.live import assembly, config
from fairlead.live.config import SETTINGS, Config, find_file, load
from fairlead.live.home import home_folder
from fairlead.node import shim
from fairlead.node.gpu.fake_gpus import FAKE_UUID
from fairlead.node.identity import AttemptId
from fairlead.node.order import Order


def written(folder: Path, text: str) -> Path:
    path = folder / "fairlead.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_without_anything_every_value_is_a_default() -> None:
    made = load()
    assert (made.server.host, made.server.port, made.policy.stack) == ("127.0.0.1", 7317, "eaco")
    assert {one.source for one in made.values.values()} == {"default"}


def test_later_sources_win_and_each_value_knows_its_own(tmp_path: Path) -> None:
    file = written(tmp_path, "[server]\nhost = 'a'\nport = 1\n\n[controller]\npoll_s = 2\nsave_s = 9.5\n")
    environment = {"FAIRLEAD_SERVER_PORT": "2", "FAIRLEAD_CONTROLLER_POLL_S": "3", "FAIRLEAD_JOB_ID": "7"}
    made = load(file, environment, {"controller.poll_s": 4.0, "server.host": None})
    assert (made.server.host, made.server.port) == ("a", 2)
    assert (made.controller.poll_s, made.controller.save_s) == (4.0, 9.5)
    sources = {name: made.values[name].source for name in ("server.host", "server.port", "controller.poll_s")}
    assert sources == {
        "server.host": f"{file}:2",
        "server.port": "FAIRLEAD_SERVER_PORT",
        "controller.poll_s": "--poll-s",
    }
    assert made.values["engine.name"].source == "default"
    assert made.to_dict()["controller.save_s"] == {"value": 9.5, "source": f"{file}:7"}


def test_the_guard_is_set_by_nested_tables_and_by_variables(tmp_path: Path) -> None:
    file = written(tmp_path, "[guard]\ninit_s = 10\n[guard.rate]\nperiod_s = 0.2\n")
    made = load(file, {"FAIRLEAD_GUARD_EVICTION_FREEZE_S": "0.7", "FAIRLEAD_GUARD_SLO_WINDOWS": "3"})
    guard = made.guard
    assert (guard.init_s, guard.rate.period_s, guard.eviction.freeze_s, guard.slo_windows) == (10.0, 0.2, 0.7, 3)
    assert assembly._guard(made) == {
        "init_s": 10.0,
        "slo_windows": 3,
        "rate": {"period_s": 0.2},
        "eviction": {"freeze_s": 0.7},
    }


@pytest.mark.parametrize(
    ("text", "named", "hint"),
    [
        ("[sevrer]\nport = 1", "unknown table 'sevrer'", "did you mean 'server'?"),
        ("[server]\nprot = 1", "unknown key 'server.prot'", "did you mean 'port'?"),
        ("[guard.rate]\nperiod = 1.0", "unknown key 'guard.rate.period'", "did you mean 'period_s'?"),
        ("server = 1", "server is 1; expected a table", "[server]"),
        ("[server]\nport = 'http'", "fairlead.toml:2: server.port = 'http'", None),
        ("[server]\nport = 99999", "less than or equal to 65535", None),
        ("[server]\nport = true", "server.port = True", None),
        ("[jobs]\n\nretries = -1", "fairlead.toml:3: jobs.retries = -1: input should be greater", None),
        ("[controller]\npoll_s = nan", "controller.poll_s = nan", None),
        ("[policy]\nstack = 'eac'", "policy.stack = 'eac'", "did you mean 'eaco'?"),
        ("[engine]\nname = 'slurms'", "unknown engine 'slurms'", "did you mean 'slurm'?"),
        ("[engine]\ngpu_model = 'H2000'", "unknown GPU model 'H2000'", "did you mean 'H200'?"),
        ("[engine]\nrent = 'boots=1'", "unknown term 'boots'", "default, or some of"),
        ("[guard]\nsample_s = 9.0", "gap_s must be at least twice sample_s", None),
        ("[server]\ntls_cert = 'a.pem'", "server.tls_cert is set alone", "belong together"),
        ("[server", "not valid TOML", None),
    ],
)
def test_a_mistake_names_the_file_the_key_the_value_and_what_was_allowed(
    tmp_path: Path, text: str, named: str, hint: str | None
) -> None:
    with pytest.raises(InputError) as raised:
        load(written(tmp_path, text))
    assert named in raised.value.message
    assert hint is None or hint in str(raised.value.hint)


def test_a_mistake_in_the_environment_names_the_variable() -> None:
    with pytest.raises(InputError, match="FAIRLEAD_SERVER_PORT=many"):
        load(None, {"FAIRLEAD_SERVER_PORT": "many"})


def test_a_mistake_on_the_command_line_names_the_option() -> None:
    with pytest.raises(InputError, match="--policy nothing: "):
        load(None, {}, {"policy.stack": "nothing"})
    with pytest.raises(InputError, match="--fake-gpus -1: "):
        load(None, {}, {"engine.fake_gpus": -1})


def test_every_setting_has_its_own_variable_and_says_what_it_is() -> None:
    assert len({setting.variable for setting in SETTINGS.values()}) == len(SETTINGS)
    assert [s.name for s in SETTINGS.values() if not s.about and not s.name.startswith("guard.")] == []


def test_the_example_shows_every_setting_with_its_default() -> None:
    example = Path(__file__).parents[2] / "examples" / "fairlead.toml"
    text = example.read_text(encoding="utf-8")
    assert {name: one.value for name, one in load(example).values.items()} == {
        name: setting.default for name, setting in SETTINGS.items()
    }
    for name in SETTINGS:
        if not name.startswith("guard."):
            assert f"{name.partition('.')[2]} = " in text, name


def test_files_that_a_file_names_are_looked_for_beside_it(tmp_path: Path) -> None:
    made = load(
        written(tmp_path, "[engine]\nvariability = 'v.json'\ninterference = 'gavel-v100'\nhistory = '/h.json'\n")
    )
    assert made.engine.variability == str(tmp_path / "v.json")
    assert (made.engine.interference, made.engine.history) == ("gavel-v100", "/h.json")


def test_home_and_file_are_found_by_option_then_variable_then_custom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FAIRLEAD_CONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("FAIRLEAD_HOME", raising=False)
    assert home_folder() == tmp_path / ".fairlead"
    monkeypatch.setenv("FAIRLEAD_HOME", str(tmp_path / "other"))
    assert home_folder() == tmp_path / "other"
    assert home_folder(tmp_path / "given") == tmp_path / "given"
    assert find_file(None, tmp_path) is None
    file = written(tmp_path, "")
    assert find_file(None, tmp_path) == file
    monkeypatch.setenv("FAIRLEAD_CONFIG", "elsewhere.toml")
    assert find_file(None, tmp_path) == Path("elsewhere.toml")
    assert find_file(Path("given.toml"), tmp_path) == Path("given.toml")


def test_a_file_that_is_asked_for_and_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        load(tmp_path / "absent.toml")


def budgeted(stack: str, gpus: float | None) -> str:
    made: Config = load(None, {}, {"policy.stack": stack, "budget.gpus": gpus, "engine.rent": "default"})
    return assembly.stack_of(made).spec


def test_the_budget_becomes_an_option_of_boa_unless_the_policy_has_one() -> None:
    assert "sizing=boa:budget=12," in budgeted("boa", 12.0)
    assert "sizing=boa:every_s=60:budget=12," in budgeted("sizing=boa:every_s=60,powering=rent", 12.0)
    assert "sizing=boa:budget=48," in budgeted("boa:budget=48,powering=rent", 12.0)
    assert budgeted("fifo", 12.0) == budgeted("fifo", None)


def test_a_policy_that_rents_needs_terms() -> None:
    with pytest.raises(InputError, match=r"rents nodes, but engine.rent has no terms"):
        assembly.stack_of(load(None, {}, {"policy.stack": "boa"}))


def test_what_neighbours_cost_may_be_known_from_the_start() -> None:
    learnt = assembly.stack_of(load(None, {}, {"engine.history": "eaco"})).sharing.learnt
    assert learnt is not None
    assert len(list(learnt)) > 0


def test_an_unknown_table_of_interference_is_an_error() -> None:
    with pytest.raises(InputError, match="unknown table 'eoca'"):
        assembly.table_named("eoca")


def test_the_configuration_is_read_again_as_it_was_shown(tmp_path: Path) -> None:
    shown = load().to_dict()
    lines: dict[str, list[str]] = {}
    for name, one in shown.items():
        table, _, key = name.rpartition(".")
        if one["value"] is not None:
            value = f'"{one["value"]}"' if isinstance(one["value"], str) else one["value"]
            lines.setdefault(table, []).append(f"{key} = {value}")
    text = "\n".join(f"[{table}]\n" + "\n".join(keys) for table, keys in lines.items())
    again = load(written(tmp_path, text))
    assert {n: v.value for n, v in again.values.items()} == {n: v["value"] for n, v in shown.items()}
    assert config.NAME == "fairlead.toml"


def test_a_variable_that_means_nothing_is_a_mistake_with_the_one_that_is_meant() -> None:
    with pytest.raises(InputError, match="FAIRLEAD_SERVER_PRT") as refused:
        load(None, {"FAIRLEAD_SERVER_PRT": "7400", "PATH": "/bin"})
    assert "did you mean FAIRLEAD_SERVER_PORT?" in str(refused.value.hint)
    with pytest.raises(InputError, match="FAIRLEAD_URI"):
        load(None, {"FAIRLEAD_URI": "http://127.0.0.1:1"})


def test_variables_that_jobs_are_given_are_no_mistakes(tmp_path: Path) -> None:
    order = Order(AttemptId(1, 1), ("true",), kind="service", gpus=(f"{FAKE_UUID}0000",))
    shimmed = shim.environment(tmp_path / "lib.so", page=tmp_path, usage=tmp_path, quota_bytes=1, log=tmp_path)
    told = {**order.environment(), **shimmed, LAUNCH: "x", LATENCY: "socket", REPORT: "x", STOP: "x"}
    assert sum(name.startswith("FAIRLEAD_") for name in told) > 8
    load(None, told)
