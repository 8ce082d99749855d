"""Forked children: they send nothing of their parent's, and its sums arrive once."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from akka_otel_callbacks.common.vocabulary import names
from tests.common.scripts import run
from tests.support.otlp_sink import OtlpSink, otlp_sink

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no fork")

CHILDREN = {
    "os._exit": """
pid = os.fork()
if pid == 0:
    time.sleep(0.5)
    os._exit(0)
os.waitpid(pid, 0)
""",
    "an end like any program's": """
pid = os.fork()
if pid == 0:
    time.sleep(0.5)
    sys.exit(0)
os.waitpid(pid, 0)
""",
    "a close of its own": """
pid = os.fork()
if pid == 0:
    telemetry.capture(Report(RLStep(number=9, reward=9.0)), step=True)
    telemetry.close()
    sys.exit(0)
os.waitpid(pid, 0)
""",
    "a data loader's workers": """
import multiprocessing
context = multiprocessing.get_context("fork")
workers = [context.Process(target=time.sleep, args=(0.5,)) for _ in range(2)]
for worker in workers: worker.start()
for worker in workers: worker.join()
""",
}
TRAINING = """
import warnings
warnings.simplefilter("ignore")
{setup}
for number in range(1, 4):
    telemetry.capture(Report(RLStep(number=number, reward=1.0, duration_s=1.0)), step=True)
{child}
telemetry.capture(Report(RLStep(number=4, reward=1.0, duration_s=1.0)), step=True)
telemetry.close()
print(json.dumps(os.getpid()))
"""
OWN = "telemetry = start()\ntelemetry.flush(5)"
GIVEN = """
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
provider = MeterProvider([PeriodicExportingMetricReader(OTLPMetricExporter(), 60_000)], shutdown_on_exit=False)
telemetry = start(meter_provider=provider)
"""


@pytest.fixture
def sink() -> Iterator[OtlpSink]:
    with otlp_sink() as opened:
        yield opened


def variables(sink: OtlpSink) -> dict[str, str]:
    return {"OTEL_EXPORTER_OTLP_ENDPOINT": sink.http, "OTEL_METRIC_EXPORT_INTERVAL": "100"}


@pytest.mark.parametrize("child", CHILDREN.values(), ids=CHILDREN.keys())
def test_a_child_sends_nothing_and_the_parent_goes_on(child: str, sink: OtlpSink, tmp_path: Path) -> None:
    done = run(TRAINING.format(setup=OWN, child=child), variables(sink), tmp_path)
    assert done.returncode == 0, done.stderr
    parent = int(done.stdout)
    assert {point.resource[names.ATTR_PROCESS_PID.name] for point in sink.metrics()} == {parent}
    assert len({point.resource[names.ATTR_SERVICE_INSTANCE_ID.name] for point in sink.metrics()}) == 1
    last = sink.last_export()
    assert [point.value for point in last if point.name == names.RL_STEP_COUNT.name] == [4]
    assert [point.histogram.count for point in last if point.name == names.RL_STEP_DURATION.name] == [4]
    assert [span.name for span in sink.spans()] == [names.SPAN_JOB.name], "the job's span is sent once"


def test_a_child_is_silent_through_a_given_provider_too(sink: OtlpSink, tmp_path: Path) -> None:
    """The SDK starts its reader again in the child. It finds no source there; a histogram's sums are the SDK's own. The
    reader has a long interval: forked within an export, it would keep the child waiting for its lock for ever."""
    flush = "provider.force_flush()\n"  # the parent exports what it has, and so does the child
    child = flush + CHILDREN["os._exit"].replace("time.sleep(0.5)", flush.strip())
    done = run(TRAINING.format(setup=GIVEN, child=child), variables(sink), tmp_path)
    assert done.returncode == 0, done.stderr
    instances: dict[str, set[str]] = {}
    for point in sink.metrics():
        instances.setdefault(point.resource[names.ATTR_SERVICE_INSTANCE_ID.name], set()).add(point.name)
    assert len(instances) == 2, (
        "the SDK gives the child an instance of its own, which is how this test tells them apart"
    )
    of_parent, of_child = sorted(instances.values(), key=len, reverse=True)
    assert {names.RL_STEP_COUNT.name, names.RL_STEP_REWARD.name} <= of_parent
    assert of_child <= {names.RL_STEP_DURATION.name}


COUNTING = """
import threading
from akka_otel_callbacks.common.export.user_metrics import UserMetrics

metrics = UserMetrics()
rows, sizes = metrics.meter.create_counter("rows"), metrics.meter.create_histogram("sizes")
slow, entered = 0.0, threading.Event()

def level(options):
    entered.set()
    time.sleep(slow)
    return [Observation(7)]

def training(run_id):
    identity = identify(os.environ, engine={}, run_id=run_id)
    return Telemetry.start(identity, RLStep, user_metrics=lambda: metrics)

from opentelemetry.metrics import Observation
metrics.meter.create_observable_counter("level", [level])
telemetry = training("parent")
rows.add(5)
sizes.record(1.0)
telemetry.flush(5)
"""
FORKED = """
pid = os.fork()
if pid == 0:
    rows.add(2)
    sizes.record(3.0)
    training("child").close()
    os._exit(0)
os.waitpid(pid, 0)
rows.add(1)
telemetry.close()
"""
WITHIN_A_COLLECTION = """
slow = 0.5
entered.clear()
threading.Thread(target=metrics.scopes).start()
entered.wait()
"""


@pytest.mark.parametrize("moment", ["", WITHIN_A_COLLECTION], ids=["between collections", "within one"])
def test_a_child_s_own_metrics_begin_anew(moment: str, sink: OtlpSink, tmp_path: Path) -> None:
    done = run(COUNTING + moment + FORKED, variables(sink), tmp_path)
    assert done.returncode == 0, done.stderr
    latest = {(point.resource[names.ATTR_RUN_ID.name], point.name): point for point in sink.metrics()}
    assert {run_id: latest[run_id, "rows"].value for run_id in ("parent", "child")} == {"parent": 6, "child": 2}
    assert {run_id: latest[run_id, "level"].value for run_id in ("parent", "child")} == {"parent": 7, "child": 7}
    sizes = latest["child", "sizes"].histogram
    assert sizes is not None
    assert (sizes.count, sizes.sum, sizes.min) == (1, 3.0, 3.0)


def test_a_callback_that_hangs_holds_no_fork(sink: OtlpSink, tmp_path: Path) -> None:
    """Neither the training, which forks to load its data, nor the child. What it has of its parent is not published."""
    hangs = WITHIN_A_COLLECTION.replace("0.5", "9").replace(").start()", ", daemon=True).start()")
    done = run(COUNTING + hangs + FORKED, variables(sink), tmp_path)
    assert done.returncode == 0, done.stderr
    assert "child" not in {point.resource[names.ATTR_RUN_ID.name] for point in sink.metrics() if point.name == "rows"}
