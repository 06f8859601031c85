"""Anything at all through the API: kept exactly or refused in words, never an error of ours, never a shell."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.live.api.serving import Served, served
from tests.live.scripted import World, wait_for

words = st.text(max_size=50)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=10,
)
fields = st.sampled_from(
    ["command", "name", "kind", "gpus", "min_gpus", "max_gpus", "memory_mib", "profile", "deadline_s", "estimate_s",
     "priority", "slo_s", "batch", "cwd", "env", "retries", "grace_s", "hold"]
)  # fmt: skip
quick = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    world = World(tmp_path_factory.mktemp("world"), "fifo", "16x8")
    try:
        with served(world) as made:
            yield made
    finally:
        world.close()


def post(site: Served, body: Any) -> Any:
    """As JSON that has whatever Python has: NaN, half characters, numbers without end."""
    return site.call("POST", "/v1/jobs", raw=json.dumps(body).encode())


@quick
@example(command=["sh", "-c", "echo $HOME; `id` && rm -rf / | cat"], name="$(id)", folder="/; ls", value="$PATH`id`")
@example(command=["x", "", " ", "\n", "'", '"', "\\"], name="", folder="/", value="a=b=c\nd")
@example(command=["\ud800"], name="\udfff", folder="/\ud800", value="\ud800")
@example(command=["a\0b"], name="\0", folder="/\0", value="\0")
@example(command=["🦭", "\u202e"], name="🦭", folder="/ö", value="\u2028")
@given(command=st.lists(words, min_size=1, max_size=5), name=words, folder=words, value=words)
def test_commands_names_paths_and_variables_arrive_as_they_were_sent_or_are_refused(
    fuzzed: Served, command: list[str], name: str, folder: str, value: str
) -> None:
    body = {"command": command, "name": name, "cwd": "/" + folder, "env": {"V": value}}
    found = post(fuzzed, body)
    assert found.status in (201, 422), found.data
    if found.status == 422:
        assert set(found.json) == {"error", "hint"}
        return
    job_id, engine = found.json["id"], fuzzed.world.engine
    shown = fuzzed.call("GET", f"/v1/jobs/{job_id}").json
    assert (shown["command"], shown["cwd"]) == (command, "/" + folder)
    assert shown["name"] == name or not name
    wait_for(lambda: (job_id, 1) in engine.orders)
    order = engine.orders[job_id, 1]
    assert (list(order.argv), order.env) == (command, {"V": value})
    engine.end((job_id, 1))


@quick
@given(more=st.dictionaries(fields | st.text(max_size=10), json_values, max_size=3))
def test_any_json_is_a_job_or_is_refused(fuzzed: Served, more: dict[str, Any]) -> None:
    found = post(fuzzed, {"command": ["train"], "hold": True, **more})
    assert found.status in (201, 422), found.data
    assert set(found.json) in ({"id", "is_new"}, {"error", "hint"})


@quick
@given(raw=st.binary(max_size=100))
def test_any_bytes_are_refused_in_words(fuzzed: Served, raw: bytes) -> None:
    found = fuzzed.call("POST", "/v1/jobs", raw=raw)
    assert found.status == 422
    assert set(found.json) == {"error", "hint"}


@quick
@given(
    path=st.sampled_from(
        ["/v1/jobs/{}", "/v1/jobs/{}/log", "/v1/jobs?after={}", "/v1/jobs?user={}", "/v1/jobs?state={}", "/{}",
         "/v1/jobs/1/log?offset={}", "/v1/jobs/1/log?attempt={}", "/v1/events?wait_s=0&after={}", "/v1/events?limit={}"]
    ),
    what=st.binary(max_size=20).map(quote) | st.integers().map(str) | st.just("nan") | st.text(max_size=9).map(
        lambda text: quote(text, errors="replace")
    ),
)  # fmt: skip
def test_any_parameter_is_answered_or_refused(fuzzed: Served, path: str, what: str) -> None:
    found = fuzzed.call("GET", path.format(what), who="adam")
    assert found.status in (200, 401, 404, 405, 422), (path.format(what), found.data)


@quick
@given(name=st.binary(min_size=1, max_size=20).map(lambda data: quote(data, safe="")))
def test_any_name_of_a_node_is_answered_or_refused(fuzzed: Served, name: str) -> None:
    found = fuzzed.call("POST", f"/v1/nodes/{name}/resume", who="olga")
    assert found.status in (202, 404, 405), found.data


@quick
@given(key=st.text(st.characters(max_codepoint=255, exclude_characters="\r\n\0"), max_size=220))
def test_any_key_is_taken_or_refused(fuzzed: Served, key: str) -> None:
    sent = {"Idempotency-Key": key.strip()}
    body = {"command": ["train"], "hold": True}
    try:
        first = fuzzed.call("POST", "/v1/jobs", body, headers=sent)
    except ValueError:  # the client's own library will not send it
        return
    assert first.status in (201, 400, 422), first.data  # 400 is the server's own, for what is no HTTP
    if first.status == 201:
        again = fuzzed.call("POST", "/v1/jobs", body, headers=sent)
        assert again.json == {"id": first.json["id"], "is_new": False}


@quick
@given(user=words, role=words, note=words)
def test_any_token_is_made_or_refused(fuzzed: Served, user: str, role: str, note: str) -> None:
    raw = json.dumps({"user": user, "role": role or "user", "note": note}).encode()
    assert fuzzed.call("POST", "/v1/tokens", raw=raw, who="adam").status in (201, 422)
