"""The OpenAPI document is true: schemathesis makes requests from it and holds the answers against it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from fairlead.live.api.app import document
from tests.live.api.serving import Served, served
from tests.live.scripted import World

PROMISES = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    response_headers_conformance,
]
quick = settings(
    max_examples=10,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    world = World(tmp_path_factory.mktemp("world"))
    try:
        with served(world) as made:
            made.submit("adam", name="runs")
            made.submit("adam", hold=True)
            yield made
    finally:
        world.close()


def test_answers_are_as_documented(site: Served) -> None:
    schema: Any = schemathesis.openapi.from_dict(document(site.app))
    tried = 0

    def hold(case: Any) -> None:
        nonlocal tried
        tried += 1
        if isinstance(case.query, dict):
            case.query.pop("wait_s", None)  # it would wait
            if case.operation.path == "/v1/updates":
                case.query["life_s"] = 0
        if case.operation.path == "/v1/tokens/{token_id}":
            case.path_parameters["token_id"] = 1  # not the one that asks
        if case.operation.path == "/v1/tokens/rotate" and isinstance(case.body, dict):
            case.body["id"] = 1
        sent = {"Authorization": f"Bearer {site.token['adam']}"}
        case.call_and_validate(base_url=site.server.url, headers=sent, checks=PROMISES)

    for found in schema.get_all_operations():
        operation = found.ok()
        if operation.path == "/v1/whatif":  # each costs a simulation; test_what_if.py asks
            continue
        for mode in GenerationMode:
            strategy = operation.as_strategy(generation_mode=mode)
            with contextlib.suppress(Unsatisfiable):  # there is no bad way to ask for what has no parameters
                quick(given(strategy)(hold))()
    assert tried > 200
