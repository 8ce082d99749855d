"""The publisher of checkpoints as it stands: to a folder and a real S3 server, killed at every point, and measured."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl", reason="the example trains with TRL")
pytest.importorskip("fsspec", reason="the example publishes with fsspec")

import fsspec

from akka_otel_callbacks.common.vocabulary import names
from tests.support.otlp_sink import OtlpSink, otlp_sink
from tests.support.points import SpanRecord

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "checkpoints"
PREFIX = f"{names.SPAN_CHECKPOINT_OPERATION.name}."
DURATION, SIZE, PENDING = (
    names.CHECKPOINT_OPERATION_DURATION.name,
    names.CHECKPOINT_TRANSFER_SIZE.name,
    names.CHECKPOINT_PENDING.name,
)
BUCKET, RUN_ID, STEPS = "checkpoints", "published-run", 3
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "not-secret", "AWS_DEFAULT_REGION": "us-east-1"}
PUBLICATION = ("publish", "catalog_reserve", "upload", "catalog_acknowledge")


# -- where to publish


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The endpoint of a server of S3's protocol, in a process of its own."""
    pytest.importorskip("moto", reason="moto's server comes with the extra `examples`")
    pytest.importorskip("s3fs", reason="s3fs comes with the extra `examples`")
    log = tmp_path_factory.mktemp("s3") / "server.log"
    server = [sys.executable, "-c", SERVER]
    with log.open("w") as output, subprocess.Popen(server, stdout=subprocess.PIPE, stderr=output, text=True) as process:
        assert process.stdout is not None
        try:
            endpoint = f"http://127.0.0.1:{process.stdout.readline().strip()}"
            wait_for(endpoint)
            request = urllib.request.Request(f"{endpoint}/{BUCKET}", method="PUT")
            urllib.request.urlopen(request, timeout=30).close()
            yield endpoint
        finally:
            process.kill()


SERVER = """
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server
server = make_server("127.0.0.1", 0, DomainDispatcherApplication(create_backend_app), threaded=True)
print(server.server_port, flush=True)
server.serve_forever()
"""


def wait_for(endpoint: str) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with suppress(OSError):
            urllib.request.urlopen(endpoint, timeout=5).close()
            return
        time.sleep(0.1)
    raise AssertionError(f"nothing answers at {endpoint}")


@pytest.fixture(params=["folder", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str | None]:
    """A URL to publish to, and the endpoint of an object store."""
    if request.param == "folder":
        return str(tmp_path / "published"), None
    return f"s3://{BUCKET}/{tmp_path.name}", request.getfixturevalue("s3")


def content(place: tuple[str, str | None]) -> dict[str, bytes]:
    """Everything that is stored there."""
    url, endpoint = place
    options = {"endpoint_url": endpoint, "key": "test", "secret": "not-secret"} if endpoint else {}
    file_system, root = fsspec.core.url_to_fs(url, **options, skip_instance_cache=True)
    file_system.invalidate_cache()
    return {path.removeprefix(f"{root}/"): file_system.cat_file(path) for path in file_system.find(root)}


# -- killed


def killed(folder: Path, url: str, every: int, environ: Mapping[str, str]) -> dict[str, Any]:
    command = [sys.executable, str(ROOT / "tests" / "examples" / "killed_publisher.py"), str(folder), url, str(every)]
    path = os.pathsep.join([str(EXAMPLE), str(ROOT / "src"), str(ROOT)])
    result = subprocess.run(
        command, env={**os.environ, **environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=1800
    )
    assert result.returncode == 0, result.stderr[-3000:]
    return dict(json.loads(result.stdout))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system cannot fork")
def test_killed_at_any_point_it_loses_nothing(tmp_path: Path) -> None:
    found = killed(tmp_path, str(tmp_path / "store"), 1, {})
    assert found["points"] > 200
    assert found["kills"] > 30
    assert found["pending"] == [0, 1, 2]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system cannot fork")
def test_killed_on_its_way_to_an_object_store_it_loses_nothing(tmp_path: Path, s3: str) -> None:
    found = killed(tmp_path, f"s3://{BUCKET}/killed", 24, {**CREDENTIALS, "TEST_ENDPOINT": s3})
    assert found["kills"] > 10


# -- measured


@contextmanager
def programs(tmp_path: Path, place: tuple[str, str | None]) -> Iterator[tuple[OtlpSink, Any]]:
    """A collector, and what runs one of the example's programs."""
    url, endpoint = place
    with otlp_sink() as sink:
        environ = {**os.environ, **CREDENTIALS, "OTEL_EXPORTER_OTLP_ENDPOINT": sink.http, "CUDA_VISIBLE_DEVICES": ""}
        options = ["--to", url, "--work", str(tmp_path / "work"), *(["--endpoint-url", endpoint] if endpoint else [])]

        def run(program: str, *arguments: str) -> str:
            command = [sys.executable, str(EXAMPLE / program), *options, *arguments]
            result = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=300)
            assert result.returncode == 0, result.stderr[-3000:]
            assert "telemetry failed" not in result.stderr
            return result.stdout

        yield sink, run


def attribute(of: SpanRecord | Any, attribute: Any) -> Any:
    return of.attributes.get(attribute.name)


def totals(sink: OtlpSink, metric: str) -> dict[str, tuple[int, float]]:
    """Count and sum of the successful operations, over all instances."""
    newest = {
        (point.resource[names.ATTR_SERVICE_INSTANCE_ID.name], *sorted(point.attributes.items())): point
        for point in sink.metrics()
        if point.name == metric
    }
    found: dict[str, tuple[int, float]] = {}
    for point in newest.values():
        assert attribute(point, names.ATTR_CHECKPOINT_OUTCOME) == "success"
        operation = attribute(point, names.ATTR_CHECKPOINT_OPERATION)
        count, total = found.get(operation, (0, 0.0))
        found[operation] = count + point.histogram.count, total + point.histogram.sum
    return found


def test_every_operation_of_a_training_is_seen(tmp_path: Path, place: tuple[str, str | None]) -> None:
    """To a folder from a thread of the training's process, to an object store from another process."""
    with programs(tmp_path, place) as (sink, run):
        run("train.py", "--steps", str(STEPS), *(["--process"] if place[1] else []))
        stored = content(place)
        snapshots = {path.partition("/")[0] for path in stored}
        assert len(snapshots) == STEPS
        counts = {operation: count for operation, (count, _) in totals(sink, DURATION).items()}
        assert counts == {**dict.fromkeys(PUBLICATION, STEPS), "stage": 2 * STEPS}, "the trainer's stages and ours"
        assert totals(sink, SIZE) == {"upload": (STEPS, sum(map(len, stored.values())))}
        check_spans(sink, snapshots, "object_store" if place[1] else "shared_filesystem")
        pending = [point.value for point in sink.metrics() if point.name == PENDING]
        assert pending[-1] == 0
        assert set(pending) <= {*range(STEPS + 1)}
        assert {point.resource[names.ATTR_RUN_ID.name] for point in sink.metrics()} == {RUN_ID}

        shutil.rmtree(tmp_path / "work" / "training")
        restored = Path(run("restore.py", "--into", str(tmp_path / "restored"), "--branch", "child-run").strip())
        assert restored.name == f"checkpoint-{STEPS}"
        newest = check_restored(sink)
        files = {path.removeprefix(f"{newest}/"): data for path, data in stored.items() if path.startswith(newest)}
        files.pop("manifest.json")
        left = [path for path in restored.rglob("*") if path.is_file()]
        assert {str(path.relative_to(restored)): path.read_bytes() for path in left} == files
        assert totals(sink, SIZE)["materialize"] == (1, sum(map(len, files.values())))


def check_spans(sink: OtlpSink, snapshots: set[str], mode: str) -> None:
    """One trace; the parts of a publication under it, and the publication under the job."""
    spans = {span.span_id: span for span in sink.spans()}
    (job,) = (span for span in spans.values() if span.name == names.SPAN_JOB.name)
    assert {span.trace_id for span in spans.values()} == {job.trace_id}
    publications = [span for span in spans.values() if span.name == f"{PREFIX}publish"]
    assert {attribute(span, names.ATTR_CHECKPOINT_SNAPSHOT_ID) for span in publications} == snapshots
    assert {span.parent_span_id for span in publications} == {job.span_id}
    for part in PUBLICATION[1:]:
        found = [span for span in spans.values() if span.name == PREFIX + part]
        assert len(found) == STEPS
        for span in found:
            whole = spans[span.parent_span_id]
            assert whole in publications
            assert whole.start_ns <= span.start_ns <= span.end_ns <= whole.end_ns
            assert attribute(span, names.ATTR_CHECKPOINT_SNAPSHOT_ID) == attribute(
                whole, names.ATTR_CHECKPOINT_SNAPSHOT_ID
            )
            assert attribute(span, names.ATTR_CHECKPOINT_STORAGE_MODE) == mode
            assert attribute(span, names.ATTR_CHECKPOINT_ARTIFACT_KIND) == "full_state"


def check_restored(sink: OtlpSink) -> str:
    """What the child's run says of its source. Returns the snapshot."""
    by_name = {span.name: span for span in sink.spans()}
    for name in ("validate", "materialize"):
        span = by_name[PREFIX + name]
        assert span.resource[names.ATTR_RUN_ID.name] == "child-run"
        assert attribute(span, names.ATTR_CHECKPOINT_RESTORE_MODE) == "branch"
        assert attribute(span, names.ATTR_CHECKPOINT_SOURCE_RUN_ID) == RUN_ID
        assert attribute(span, names.ATTR_CHECKPOINT_SOURCE_ATTEMPT) == 1
        assert attribute(span, names.ATTR_CHECKPOINT_SOURCE_ENGINE_STEP) == STEPS
    return str(attribute(span, names.ATTR_CHECKPOINT_SNAPSHOT_ID))
