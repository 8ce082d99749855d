"""Where `/metrics` is served: IPv4, IPv6, names, what is none of them, and who else holds the port."""

from __future__ import annotations

import os
import socket
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from akka_otel_callbacks.cli.probe import probe
from akka_otel_callbacks.common.export.selection import select
from akka_otel_callbacks.common.export.targets.target import Answer
from akka_otel_callbacks.common.telemetry import Telemetry
from akka_otel_callbacks.common.vocabulary import names
from tests.common.reports import Report, grpo_step
from tests.common.scripts import run
from tools.prometheus import series_name

REWARD = series_name(names.RL_STEP_REWARD, "scrape")
HOST, PORT = "OTEL_EXPORTER_PROMETHEUS_HOST", "OTEL_EXPORTER_PROMETHEUS_PORT"


def _has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


needs_ipv6 = pytest.mark.skipif(not _has_ipv6(), reason="this machine has no IPv6 loopback")


def free_port(host: str = "127.0.0.1", family: int = socket.AF_INET) -> int:
    with socket.create_server((host, 0), family=family) as server:
        return server.getsockname()[1]


def prometheus(host: str, port: int) -> dict[str, str]:
    return {"OTEL_METRICS_EXPORTER": "prometheus", HOST: host, PORT: str(port)}


@pytest.mark.parametrize(
    ("host", "scraped", "shown"),
    [
        pytest.param("::", "[::1]", "[::]", marks=needs_ipv6),
        pytest.param("::1", "[::1]", "[::1]", marks=needs_ipv6),
        pytest.param("[::1]", "[::1]", "[::1]", marks=needs_ipv6),
        pytest.param(" [::] ", "[::1]", "[::]", marks=needs_ipv6),
        pytest.param("0:0:0:0:0:0:0:1", "[::1]", "[0:0:0:0:0:0:0:1]", marks=needs_ipv6),
        (" 127.0.0.1\n", "127.0.0.1", "127.0.0.1"),
        ("0.0.0.0", "127.0.0.1", "0.0.0.0"),
        ("", "localhost", "localhost"),
        ("  ", "localhost", "localhost"),
        ("LOCALHOST", "localhost", "LOCALHOST"),
    ],
)
def test_every_way_to_write_a_host_serves(
    host: str,
    scraped: str,
    shown: str,
    start: Callable[..., Telemetry],
    environment: pytest.MonkeyPatch,
    log: pytest.LogCaptureFixture,
) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    port = free_port("::1" if ":" in host else "127.0.0.1", family)
    for name, value in prometheus(host, port).items():
        environment.setenv(name, value)
    selection = select(os.environ, "run")
    assert str(selection.metrics[0]) == f"prometheus http://{shown}:{port}/metrics"
    free = Answer(True, "the address is free, and will stand in akka-otel/targets-*.json")
    assert probe([selection.metrics[0]]) == [free]
    telemetry = start()
    telemetry.capture(Report(grpo_step(1)), step=True)
    with urllib.request.urlopen(f"http://{scraped}:{port}/metrics", timeout=10) as response:
        assert REWARD in response.read().decode()
    (answer,) = probe([selection.metrics[0]])
    assert answer.ok is False, "the training holds it"
    telemetry.close()
    assert {record.levelname for record in log.records} == {"INFO"}


@pytest.mark.parametrize(
    "host",
    [
        "no.such.host.invalid",
        "http://127.0.0.1",
        "127.0.0.1:9464",
        "[::1]:9464",
        "a" * 300,
        "a..b",
        "256.1.1.1",
        "ü\x00",
    ],
)
def test_what_is_no_host_is_one_warning_and_the_file_and_doctor_says_so(
    host: str, start: Callable[..., Telemetry], environment: pytest.MonkeyPatch, log: pytest.LogCaptureFixture
) -> None:
    environ = {"OTEL_METRICS_EXPORTER": "prometheus", HOST: host, PORT: "0"}
    (target,) = select(environ, "run").metrics
    (answer,) = probe([target])
    assert answer.ok is False
    assert "the address cannot be opened" in answer.text
    telemetry = start(environ=environ)
    telemetry.capture(Report(grpo_step(1)), step=True)
    telemetry.close()
    (warning,) = [record.getMessage() for record in log.records if record.levelname == "WARNING"]
    assert "cannot be used" in warning
    assert names.RL_STEP_REWARD.name in Path("akka-otel/run/metrics.jsonl").read_text()


CHILD_OUTLIVES = """
telemetry = start()
telemetry.capture(Report(grpo_step(1)), step=True)
child = os.fork()
if child == 0:
    time.sleep(20)
    os._exit(0)
telemetry.close()
again = start()
again.capture(Report(grpo_step(1)), step=True)
from urllib.request import urlopen
port = os.environ["OTEL_EXPORTER_PROMETHEUS_PORT"]
text = urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10).read().decode()
again.close()
os.kill(child, signal.SIGKILL)
os.waitpid(child, 0)
print(json.dumps(len(text)))
"""


@pytest.mark.skipif(not hasattr(os, "fork") or sys.platform == "darwin", reason="needs fork")
def test_a_child_that_outlives_the_run_does_not_hold_the_port(tmp_path: Path) -> None:
    done = run(CHILD_OUTLIVES, prometheus("127.0.0.1", free_port()), tmp_path)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 1000
    assert "cannot be used" not in done.stderr


SCRAPES = """
telemetry = start()
telemetry.capture(Report(grpo_step(1)), step=True)
child = os.fork()
if child == 0:
    time.sleep(20)
    os._exit(0)
from urllib.request import urlopen
port = os.environ["OTEL_EXPORTER_PROMETHEUS_PORT"]
texts = [urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10).read() for _ in range(20)]
telemetry.close()
os.kill(child, signal.SIGKILL)
os.waitpid(child, 0)
print(json.dumps(len(texts)))
"""


@pytest.mark.skipif(not hasattr(os, "fork") or sys.platform == "darwin", reason="needs fork")
def test_no_scrape_goes_to_a_child(tmp_path: Path) -> None:
    begun = time.monotonic()
    done = run(SCRAPES, prometheus("127.0.0.1", free_port()), tmp_path)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == 20
    assert time.monotonic() - begun < 60
