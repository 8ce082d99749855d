"""The files by which a Prometheus finds the processes: who writes and who removes them, and what else may lie there."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from akka_otel_callbacks.common.export import address_files
from akka_otel_callbacks.common.export.address_files import HOST, PID, AddressFile, Found, look, sweep, withdraw_all
from akka_otel_callbacks.common.telemetry import Telemetry
from akka_otel_callbacks.common.vocabulary import names
from tests.common.reports import Report, grpo_step
from tests.common.scripts import PRELUDE, environment
from tests.support.otlp_sink import wait_until
from tests.support.servers import prometheus
from tools.prometheus import label_name, selector, series_name

Start = Callable[..., Telemetry]
FOLDER = Path("akka-otel")
SCRAPED = {"OTEL_METRICS_EXPORTER": "prometheus", "OTEL_EXPORTER_PROMETHEUS_HOST": "127.0.0.1"}
MINE = {"instance": "run.1.0", HOST: socket.gethostname(), PID: "1"}


@pytest.fixture
def scraped(environment: pytest.MonkeyPatch) -> int:
    """The port that the environment has a training served on."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    for name, value in {**SCRAPED, "OTEL_EXPORTER_PROMETHEUS_PORT": str(port)}.items():
        environment.setenv(name, value)
    return port


def found(folder: Path = FOLDER, *, count: int) -> list[Found]:
    """As many files as are expected, as soon as they are there."""
    wait_until(lambda: folder.is_dir() and len(look(folder)) == count)
    return look(folder)


def put(folder: Path, content: str | bytes, name: str = "targets-x.json") -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def as_written(address: str = "localhost:9464", **labels: str) -> str:
    return json.dumps([{"targets": [address], "labels": {**MINE, **labels}}])


def test_two_processes_of_a_machine_are_both_found(scraped: int, start: Start) -> None:
    first, second = start(run_id="first"), start(run_id="second")
    by_instance = {each.labels["instance"]: each for each in found(count=2)}
    assert by_instance["first.1.0"].address == f"127.0.0.1:{scraped}"
    assert by_instance["second.1.0"].address != f"127.0.0.1:{scraped}"
    assert [each.alive for each in by_instance.values()] == [True, True]
    first.close()
    assert [each.labels["instance"] for each in found(count=1)] == ["second.1.0"]
    second.close()
    assert os.listdir(FOLDER) == []


def test_the_file_says_of_which_run_the_process_is(scraped: int, environment: pytest.MonkeyPatch, start: Start) -> None:
    attributes = {names.ATTR_PROJECT: "triage", names.ATTR_RUN_ATTEMPT: "2", names.ATTR_RUN_NAME: "not promoted"}
    said = ",".join(f"{attribute.name}={value}" for attribute, value in attributes.items())
    environment.setenv("OTEL_RESOURCE_ATTRIBUTES", said)
    start(run_id="run-7")
    (file,) = found(count=1)
    (group,) = json.loads(file.path.read_text())
    assert group["targets"] == [f"127.0.0.1:{scraped}"]
    assert group["labels"] == {
        "instance": "run-7.2.0",
        HOST: socket.gethostname(),
        PID: str(os.getpid()),
        "__meta_akka_optimize_training_run_id": "run-7",
        "__meta_akka_optimize_training_run_attempt": "2",
        "__meta_akka_optimize_training_project": "triage",
    }


@pytest.mark.parametrize(
    ("host", "expected"), [("0.0.0.0", socket.gethostname()), ("localhost", "localhost"), ("127.0.0.1", "127.0.0.1")]
)
def test_the_address_is_one_that_others_can_reach(
    host: str, expected: str, environment: pytest.MonkeyPatch, start: Start
) -> None:
    environ = {**SCRAPED, "OTEL_EXPORTER_PROMETHEUS_HOST": host, "OTEL_EXPORTER_PROMETHEUS_PORT": "0"}
    start(environ=environ)
    (file,) = found(count=1)
    assert file.address.rpartition(":")[0] == expected
    assert int(file.address.rpartition(":")[2]) > 0


LIVES = """
telemetry = start()
print("up", flush=True)
time.sleep(60)
"""
CHILD_LIVES = """
telemetry = start()
time.sleep(1)
if (child := os.fork()) == 0:
    os.close(1)
    time.sleep(60)
print(child, flush=True)
time.sleep(60)
"""


def killed(source: str, folder: Path) -> str:
    """What a program printed first. It is killed then."""
    program = subprocess.Popen(
        [sys.executable, "-c", PRELUDE + source],
        env=environment({**SCRAPED, "OTEL_EXPORTER_PROMETHEUS_PORT": "0", "AKKA_OTEL_DIR": str(folder)}),
        stdout=subprocess.PIPE,
        text=True,
    )
    line = program.stdout.readline()
    assert [each.alive for each in found(folder, count=1)] == [True]
    program.kill()
    program.communicate()
    return line


def test_what_a_killed_process_leaves_the_next_one_removes(tmp_path: Path, scraped: int, start: Start) -> None:
    killed(LIVES, FOLDER)
    (left,) = look(FOLDER)
    assert left.alive is False
    start()
    wait_until(lambda: [each.alive for each in look(FOLDER)] == [True])
    assert not left.path.exists()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_that_outlives_its_process_does_not_keep_it_alive(tmp_path: Path) -> None:
    child = int(killed(CHILD_LIVES, tmp_path))
    try:
        os.kill(child, 0)
        assert [each.alive for each in look(tmp_path)] == [False]
    finally:
        os.kill(child, 9)


def test_the_file_of_another_machine_is_left_alone(tmp_path: Path) -> None:
    path = put(tmp_path, as_written(**{HOST: "another-machine"}))
    assert [each.alive for each in look(tmp_path)] == [None]
    assert sweep(tmp_path) == []
    assert path.exists()


def test_what_cannot_be_removed_hinders_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder such as /tmp each user removes his own files only."""
    put(tmp_path, as_written())
    monkeypatch.setattr(Path, "unlink", lambda *_, **__: (_ for _ in ()).throw(PermissionError(1, "not permitted")))
    assert sweep(tmp_path) == []
    file = AddressFile(tmp_path, "localhost:1")
    file.publish(MINE)
    assert [each.address for each in found(tmp_path, count=2)] == ["localhost:1", "localhost:9464"]


def test_an_address_that_cannot_be_withdrawn_does_not_keep_the_endpoint(
    scraped: int, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder was closed to us meanwhile. The next training of the process gets its port all the same."""
    telemetry = start()
    found(count=1)
    with monkeypatch.context() as context:
        context.setattr(Path, "unlink", lambda *_, **__: (_ for _ in ()).throw(OSError(30, "Read-only file system")))
        telemetry.close()
    assert [each.alive for each in look(FOLDER)] == [False]
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", scraped))


def test_on_a_file_system_without_locks_nobody_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, as_written())

    def flock(*_: object) -> None:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(address_files.fcntl, "flock", flock)
    file = AddressFile(tmp_path, "localhost:1")
    file.publish(MINE)
    assert [each.alive for each in found(tmp_path, count=2)] == [None, None]
    file.withdraw()
    assert [each.address for each in look(tmp_path)] == ["localhost:9464"]


def test_a_folder_that_cannot_be_is_one_warning_and_the_endpoint_serves(
    scraped: int, environment: pytest.MonkeyPatch, start: Start, log: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    environment.setenv("AKKA_OTEL_DIR", str(tmp_path / "file" / "folder"))
    telemetry = start()
    wait_until(lambda: any(record.levelname == "WARNING" for record in log.records))
    telemetry.capture(Report(grpo_step(1)), step=True)
    with socket.create_connection(("127.0.0.1", scraped)):
        pass
    telemetry.close()
    (warning,) = [record.getMessage() for record in log.records if record.levelname == "WARNING"]
    assert f"file/folder/targets-{socket.gethostname()}-{os.getpid()}-{scraped}.json cannot be written" in warning
    assert f"http://127.0.0.1:{scraped}/metrics" in warning
    assert "AKKA_OTEL_DIR" in warning


def test_a_program_that_changes_its_folder_removes_its_file(
    scraped: int, environment: pytest.MonkeyPatch, start: Start, tmp_path: Path
) -> None:
    telemetry = start()
    (file,) = found(count=1)
    (tmp_path / "elsewhere").mkdir()
    environment.chdir(tmp_path / "elsewhere")
    telemetry.close()
    assert os.listdir(tmp_path / file.path.parent) == []
    assert os.listdir() == []


def test_a_process_that_is_about_to_be_killed_withdraws_and_closes_all_the_same(scraped: int, start: Start) -> None:
    telemetry = start()
    found(count=1)
    withdraw_all()
    assert os.listdir(FOLDER) == []
    telemetry.close()


def test_whoever_reads_at_any_moment_reads_a_whole_file(tmp_path: Path) -> None:
    labels, done = {**MINE, "pad": "x" * 20_000}, threading.Event()
    read: list[Any] = []

    def watch() -> None:
        while not done.is_set():
            for path in tmp_path.glob("targets-*.json"):
                try:
                    text = path.read_text()
                except FileNotFoundError:  # removed since
                    continue
                read.append(json.loads(text))

    watching = threading.Thread(target=watch)
    watching.start()
    for _ in range(200):
        file = AddressFile(tmp_path, "localhost:9464")
        file.publish(labels)
        file.withdraw()
    done.set()
    watching.join()
    assert all(groups == [{"targets": ["localhost:9464"], "labels": labels}] for groups in read)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["targets", "labels", HOST, PID]), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(content=st.binary(max_size=50) | ANYTHING.map(lambda value: json.dumps(value).encode()))
def test_whatever_else_lies_there_stays_there(content: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("folder")
    path = put(folder, content)
    for each in look(folder):  # by chance it looks like ours, but for the machine
        assert each.labels[HOST] != socket.gethostname()
    assert sweep(folder) == []
    assert path.read_bytes() == content


def test_what_is_no_file_stays_there(tmp_path: Path) -> None:
    (tmp_path / "targets-folder.json").mkdir()
    (tmp_path / "targets-loop.json").symlink_to(tmp_path / "targets-loop.json")
    os.mkfifo(tmp_path / "targets-pipe.json")
    put(tmp_path, "[" * 60_000, "targets-deep.json")
    put(tmp_path, as_written() + " " * address_files.LARGEST, "targets-large.json")
    put(tmp_path, as_written(), "others.json")
    put(tmp_path, json.dumps([{"targets": ["a:1"], "labels": {HOST: socket.gethostname()}}]), "targets-a-users.json")
    before = sorted(os.listdir(tmp_path))
    assert [each.path.name for each in sweep(tmp_path)] == ["targets-large.json"], "it is whole within what is read"
    assert sorted(os.listdir(tmp_path)) == [name for name in before if name != "targets-large.json"]


def test_a_prometheus_finds_each_process_and_loses_each_that_ends(scraped: int, start: Start, tmp_path: Path) -> None:
    (tmp_path / "server").mkdir()
    runs = {name: start(run_id=name) for name in ("one", "two")}
    for telemetry in runs.values():
        telemetry.capture(Report(grpo_step(1)), step=True)
    reward = series_name(names.RL_STEP_REWARD, "scrape")
    run = label_name(names.ATTR_RUN_ID.name, "scrape")
    with prometheus(tmp_path / "server", targets=[str(FOLDER.absolute() / "targets-*.json")]) as server:
        wait_until(lambda: len(server.query(reward)) == 2, 30)
        samples = {sample.labels[run]: sample for sample in server.query(reward)}
        assert {name: sample.labels["instance"] for name, sample in samples.items()} == {
            "one": "one.1.0",
            "two": "two.1.0",
        }
        assert {sample.labels["job"] for sample in samples.values()} == {"training"}
        assert not [name for sample in samples.values() for name in sample.labels if name.startswith("exported_")]
        assert [sample.value for sample in server.query("up")] == [1, 1]
        assert [sample.value for sample in server.query(selector(reward, f'{run}="one"'))] == [grpo_step(1).reward]
        runs["one"].close()
        wait_until(lambda: [target["labels"]["instance"] for target in server.targets()] == ["two.1.0"], 30)
        assert {target["health"] for target in server.targets()} == {"up"}
