"""The servers that other tests ask: they take what is sent, and a program that is missing is said to be missing."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

from tests.support.otlp_sink import serving, wait_until
from tests.support.programs import program
from tests.support.servers import prometheus, victoria_metrics


class Page(BaseHTTPRequestHandler):
    """A scrape with one series."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'steps_total{run="a"} 7\n')

    def log_message(self, *args: object) -> None:
        pass


def test_prometheus_scrapes_what_a_target_file_names_and_evaluates_rules(tmp_path: Path) -> None:
    rules = tmp_path / "rules.yml"
    rules.write_text("groups: [{name: g, rules: [{alert: Seven, expr: steps_total == 7}]}]")
    with serving(Page) as url, prometheus(tmp_path, targets=[f"{tmp_path}/*.json"], rules=[rules]) as server:
        (tmp_path / "targets.json").write_text(json.dumps([{"targets": [url.removeprefix("http://")]}]))
        [sample] = wait_until(lambda: server.query("steps_total"), 30)
        [alert] = wait_until(server.alerts, 30)
        assert (sample.value, sample.labels["run"], sample.labels["job"]) == (7, "a", "training")
        assert (alert["labels"]["alertname"], alert["state"]) == ("Seven", "firing")
        assert server.targets()[0]["health"] == "up"
        with pytest.raises(ValueError, match="parse error"):
            server.query("steps_total{")


def test_victoria_metrics_takes_otlp(tmp_path: Path) -> None:
    with victoria_metrics(tmp_path) as server:
        exporter = OTLPMetricExporter(endpoint=f"{server.otlp}/v1/metrics")
        provider = MeterProvider([PeriodicExportingMetricReader(exporter)], shutdown_on_exit=False)
        provider.get_meter("test").create_counter("steps", "{step}").add(7, {"run": "a"})
        provider.shutdown()
        server.settle()
        [sample] = server.query("steps_total")
        assert (sample.value, sample.labels["run"]) == (7, "a")
        assert "steps_total" in server.names()
        assert server.query("scalar(steps_total) + 1")[0].value == 8


def test_without_a_program_a_test_is_skipped_but_not_on_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REQUIRE_PROGRAMS", raising=False)
    with pytest.raises(pytest.skip.Exception, match="no-such-program is not here: `make programs`"):
        program("no-such-program")
    monkeypatch.setenv("REQUIRE_PROGRAMS", "1")
    with pytest.raises(pytest.fail.Exception, match="no-such-program is not here"):
        program("no-such-program")
