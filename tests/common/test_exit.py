"""How long a process lives on after its script's last line, whatever the collector does: at most 2.5 s.

The time runs from where the end begins (the close, the exception, the interrupt, the last line) to the process's end,
so that neither Python's start nor the imports are in it. What the same end takes with a collector that answers, 0.2 s
on a machine at rest and more on a busy one, is measured beside it and not counted.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.common.scripts import PRELUDE, environment
from tests.support.otlp_sink import OtlpSink, otlp_sink, refusing, silent

PROMISE_S = 2.5
TRAINING = """
telemetry = start()
for number in range(1, 4):
    telemetry.capture(Report(grpo_step(number)), step=True)
time.sleep(0.5)  # an export may be under way, and failing
"""
LAST_WORDS = "print(time.monotonic(), flush=True)\n"
ENDS = {
    "closed": LAST_WORDS + "telemetry.close()",
    "left open": LAST_WORDS,
    "exception": LAST_WORDS + "raise RuntimeError('the training failed')",
    "exit": LAST_WORDS + "sys.exit(3)",
    "interrupted": """
try:
    print(flush=True)
    time.sleep(60)
except KeyboardInterrupt as interrupt:
    print(time.monotonic(), flush=True)
    telemetry.close(interrupt)
    raise
""",
    "interrupted and left open": "print(flush=True)\ntime.sleep(60)",
}
STATUS = {"exception": 1, "exit": 3, "interrupted": -signal.SIGINT, "interrupted and left open": -signal.SIGINT}


class Case(NamedTuple):
    collector: str
    transport: str
    end: str = "closed"

    def __str__(self) -> str:
        return f"{self.collector}-{self.transport}-{self.end.replace(' ', '-')}"


CASES = [
    *[
        Case(collector, transport, "closed")
        for collector in ("refused", "silent", "503")
        for transport in ("http", "grpc")
    ],
    Case("silent", "http", "left open"),
    Case("refused", "grpc", "left open"),
    Case("refused", "http", "exception"),
    Case("silent", "http", "exit"),
    Case("503", "http", "interrupted"),
    Case("silent", "grpc", "interrupted and left open"),
]


class Ended(NamedTuple):
    seconds: float
    status: int
    stderr: str


class Ends:
    """The ends of all cases, several at once: they wait, for most of the time."""

    def __init__(self, collectors: dict[str, dict[str, str]], folders: pytest.TempPathFactory) -> None:
        self._collectors, self._folders = collectors, folders
        self._pool = ThreadPoolExecutor(3)
        self._at_rest = [self._begin(Case("answering", transport)) for transport in ("http", "grpc")]
        self._ended = {case: self._begin(case) for case in CASES}
        self._at_rest += [self._begin(Case("answering", transport)) for transport in ("http", "grpc")]

    def of(self, case: Case) -> Ended:
        ended = self._ended[case].result()
        return ended if ended.seconds - self.at_rest_s() <= PROMISE_S else self._begin(case).result()

    def at_rest_s(self) -> float:
        """What an end takes that has nothing to wait for, now and here."""
        return max(end.result().seconds for end in self._at_rest)

    def _begin(self, case: Case) -> Future[Ended]:
        url = self._collectors[case.collector][case.transport]
        return self._pool.submit(once, case.end, url, case.transport, self._folders.mktemp("cwd"))


@pytest.fixture(scope="module")
def ends(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ends]:
    with ExitStack() as stack:
        answering, broken = stack.enter_context(otlp_sink()), stack.enter_context(otlp_sink(status=503))
        yield Ends(
            {
                "answering": {"http": answering.http, "grpc": answering.grpc},
                "refused": dict.fromkeys(("http", "grpc"), stack.enter_context(refusing())),
                "silent": dict.fromkeys(("http", "grpc"), stack.enter_context(silent())),
                "503": {"http": broken.http, "grpc": broken.grpc},
            },
            tmp_path_factory,
        )


def once(end: str, url: str, transport: str, cwd: Path) -> Ended:
    variables = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": url,
        "OTEL_EXPORTER_OTLP_PROTOCOL": {"http": "http/protobuf", "grpc": "grpc"}[transport],
        "OTEL_METRIC_EXPORT_INTERVAL": "100",
    }
    process = subprocess.Popen(
        [sys.executable, "-c", PRELUDE + TRAINING + ENDS[end]],
        env=environment(variables),
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    begun = process.stdout.readline().strip()
    if not begun:  # it waits to be interrupted
        begun = time.monotonic()
        process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    return Ended(time.monotonic() - float(begun), process.returncode, stderr)


@pytest.mark.skipif(sys.platform == "win32", reason="SIGINT and clocks that processes share are POSIX")
@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_process_ends_in_time(case: Case, ends: Ends) -> None:
    seconds, status, stderr = ends.of(case)
    assert status == STATUS.get(case.end, 0), stderr
    assert seconds - ends.at_rest_s() <= PROMISE_S, stderr
    assert "3 steps were not sent to otlp" in stderr
    why = {"refused": "refused", "silent": "did not answer", "503": "unavailable"}[case.collector]
    assert why in stderr.lower()
    assert stderr.count("does not accept the telemetry") <= 1, "one warning for both signals"
    assert "Traceback" not in stderr or case.end in ("exception", "interrupted", "interrupted and left open")
    assert stderr.count("Traceback") <= 1, "no thread of ours died"


@pytest.fixture
def sink() -> Iterator[OtlpSink]:
    with otlp_sink() as opened:
        yield opened


@pytest.mark.parametrize("end", ["closed", "left open", "exception"])
def test_with_a_collector_that_answers_everything_arrives(end: str, sink: OtlpSink, tmp_path: Path) -> None:
    from akka_otel_callbacks.common.vocabulary import names

    _, status, stderr = once(end, sink.http, "http", tmp_path)
    assert status == STATUS.get(end, 0), stderr
    assert sink.latest(names.RL_STEP_COUNT).value == 3
    assert [span.name for span in sink.spans()] == [names.SPAN_JOB.name]
    assert "not sent" not in stderr
