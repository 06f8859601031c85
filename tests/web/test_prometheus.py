"""Metrics, dashboard and alert rules: described, and true for a real Prometheus that scrapes a running controller."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from fairlead.live.engines.engine import GpuReading
from tests.live.api.serving import Served, served
from tests.live.scripted import World, wait_for

ROOT = Path(__file__).parents[2]
RULES = ROOT / "deploy" / "prometheus" / "alerts.yml"
DASHBOARD = ROOT / "deploy" / "grafana" / "fairlead.json"
PROMETHEUS, PROMTOOL = shutil.which("prometheus"), shutil.which("promtool")
needs_prometheus = pytest.mark.skipif(
    PROMETHEUS is None or PROMTOOL is None, reason="no Prometheus here: apt-get install prometheus"
)
PATIENCE_S = 120.0


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A controller to which everything has happened that a metric counts."""
    world = World(tmp_path_factory.mktemp("world"))
    try:
        with served(world) as made:
            first = made.submit(gpus=2, deadline_s=0.5)
            made.submit(gpus=4)
            wait_for(lambda: (first, 1) in world.engine.running)
            for gpu in range(4):
                reading = GpuReading(gpu, time.time(), 0.5, None, 1000.0, 200.0, 5000.0, 55.0, guard_state="healthy")
                world.engine.read(reading)
            world.engine.meter((first, 1), 10.0)
            made.call("GET", "/metrics", who="olga")
            world.engine.evict((first, 1), "memory")
            wait_for(lambda: world.engine.running)
            yield made
    finally:
        world.close()


def scraped(site: Served) -> dict[str, tuple[str, set[str]]]:
    """Kind and labels of each metric."""
    found: dict[str, tuple[str, set[str]]] = {}
    for family in text_string_to_metric_families(site.call("GET", "/metrics", who="olga").data.decode()):
        if not family.name.endswith("_created"):
            labels = {name for sample in family.samples for name in sample.labels} - {"le"}
            found[family.name] = (family.type, labels)
    return found


def expressions() -> dict[str, str]:
    """Of the dashboard, by panel and place."""
    panels = json.loads(DASHBOARD.read_text())["panels"]
    return {f"{p['title']} {t['refId']}": t["expr"] for p in panels for t in p["targets"]}


def test_every_metric_is_described_as_it_is(site: Served) -> None:
    page = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    lines = re.findall(r"^\| `(fairlead_\w+)` \|([^|]+)\|([^|]*)\|([^|]+)\|", page, re.MULTILINE)
    told = {
        name: (kind.split(",")[0].strip(), set(filter(None, re.split(r"[, ]+", labels))))
        for name, kind, labels, _ in lines
    }
    assert told == scraped(site)


def test_dashboard_and_rules_use_metrics_that_there_are_and_all_of_them(site: Served) -> None:
    known = set(scraped(site))
    named = re.findall(r"fairlead_\w+", " ".join(expressions().values()) + RULES.read_text())
    used = {re.sub(r"_(total|bucket|count|sum)$", "", name) for name in named}
    assert used <= known
    assert known - used <= {"fairlead_user_jobs"}, "what nobody looks at"


@needs_prometheus
def test_prometheus_takes_rules_and_configuration(tmp_path: Path) -> None:
    for name in ("alerts.yml", "prometheus.yml"):
        shutil.copy(RULES.parent / name, tmp_path)
    token = tmp_path / "fairlead.token"
    token.write_text("x")
    config = (tmp_path / "prometheus.yml").read_text().replace("/etc/prometheus/fairlead.token", str(token))
    (tmp_path / "prometheus.yml").write_text(config)
    for words in (("check", "rules", "alerts.yml"), ("check", "config", "prometheus.yml")):
        done = subprocess.run([str(PROMTOOL), *words], cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def prometheus(site: Served, tmp_path: Path) -> Iterator[str]:
    """A real one that scrapes it every second; its address."""
    (tmp_path / "token").write_text(site.token["olga"])
    (tmp_path / "alerts.yml").write_text(re.sub(r"for: \d+[smh]", "for: 0s", RULES.read_text()))
    target = site.server.url.removeprefix("http://")
    (tmp_path / "prometheus.yml").write_text(
        "global: {scrape_interval: 1s, evaluation_interval: 1s}\nrule_files: [alerts.yml]\nscrape_configs:\n"
        f"- job_name: fairlead\n  static_configs: [{{targets: ['{target}']}}]\n"
        f"  authorization: {{credentials_file: {tmp_path}/token}}\n"
    )
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    options = (f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/data")
    with (tmp_path / "log").open("wb") as log:
        started = subprocess.Popen(
            [str(PROMETHEUS), *options, f"--web.listen-address={address}"], stdout=log, stderr=log
        )
    try:
        yield f"http://{address}/api/v1"
    finally:
        started.terminate()
        started.wait(60)


def asked(url: str, path: str, **query: str) -> Any:
    try:
        with urlopen(f"{url}/{path}?{urlencode(query)}", timeout=60) as answer:
            return json.load(answer)["data"]
    except OSError as error:
        if getattr(error, "code", None) in (400, 422):
            raise AssertionError(f"{query}: {error.read()!r}") from None  # type: ignore[attr-defined]
        return None


def until(holds: Any, what: str) -> Any:
    end_s = time.monotonic() + PATIENCE_S
    while not (found := holds()):
        assert time.monotonic() < end_s, what
        time.sleep(0.2)
    return found


@needs_prometheus
def test_every_expression_of_dashboard_and_rules_is_answered_by_a_real_prometheus(prometheus: str) -> None:
    def has_data(expression: str) -> bool:
        found = asked(prometheus, "query", query=expression.replace("$__rate_interval", "30s"))
        return found is not None and bool(found["result"])

    until(lambda: has_data('up{job="fairlead"} == 1'), "it to be scraped")
    for where, expression in expressions().items():
        until(lambda: has_data(expression), f"{where}: {expression} to have data")  # noqa: B023
    rules = until(lambda: _evaluated(prometheus), "the rules to be evaluated")
    assert {rule["name"]: rule["lastError"] for rule in rules if rule.get("lastError")} == {}
    firing = until(lambda: {r["name"] for r in _evaluated(prometheus) if r["state"] == "firing"}, "an alert")
    assert "FairleadLateJobs" in firing
    assert not firing & {"FairleadDown", "FairleadTrouble", "FairleadLoopStuck", "FairleadGpuHot"}


def _evaluated(prometheus: str) -> list[dict[str, Any]]:
    found = asked(prometheus, "rules")
    rules = [] if found is None else [rule for group in found["groups"] for rule in group["rules"]]
    return rules if rules and all(rule["health"] == "ok" for rule in rules) else []
