"""The exporter's thread: when it exports, that it survives, and that it ends when it is told to."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from akka_otel_callbacks.common.threads import Closer, ExportLoop
from tests.support.otlp_sink import wait_until

LONG_S = 60.0


class Reader:
    """A metric reader that keeps the times of its collections."""

    def __init__(self) -> None:
        self.collected: list[float] = []
        self.closed = False
        self.failing = False
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()

    def collect(self) -> bool:
        self.entered.set()
        self.gate.wait(10)
        self.collected.append(time.monotonic())
        if self.failing:
            raise ConnectionError("nobody there")
        return True

    def shutdown(self) -> None:
        self.closed = True


@pytest.fixture
def reader() -> Reader:
    return Reader()


@pytest.fixture
def run(reader: Reader) -> Iterator[Callable[..., ExportLoop]]:
    loops: list[ExportLoop] = []

    def start(interval_s: float = LONG_S, pause_s: float | None = None, share: float = 1.0) -> ExportLoop:
        loops.append(ExportLoop(reader.collect, reader.shutdown, interval_s, pause_s, share))
        loops[-1].start()
        return loops[-1]

    yield start
    reader.gate.set()
    for loop in loops:
        loop.stop()
        loop.join(5)


def seconds_to_end(loop: Closer) -> float:
    begin = time.monotonic()
    loop.stop()
    loop.join(LONG_S / 2)
    assert not loop.is_alive()
    return time.monotonic() - begin


def test_it_exports_at_every_interval_and_once_more_at_the_end(run: Callable[..., ExportLoop], reader: Reader) -> None:
    loop = run(interval_s=0.05)
    wait_until(lambda: len(reader.collected) >= 3)
    assert min(b - a for a, b in zip(reader.collected, reader.collected[1:], strict=False)) >= 0.045
    stopped = time.monotonic()
    seconds_to_end(loop)
    assert reader.collected[-1] >= stopped
    assert reader.closed


def test_the_first_export_comes_after_the_share_of_the_interval(run: Callable[..., ExportLoop], reader: Reader) -> None:
    began = time.monotonic()
    run(interval_s=1.0, share=0.1)
    wait_until(lambda: len(reader.collected) == 2)
    assert reader.collected[0] - began >= 0.095
    assert reader.collected[1] - reader.collected[0] >= 0.95


def test_with_a_small_share_it_does_not_wait_for_the_interval(run: Callable[..., ExportLoop], reader: Reader) -> None:
    run(interval_s=LONG_S, share=0.001)
    wait_until(lambda: reader.collected)


def test_steps_do_not_wake_a_loop_that_goes_by_the_interval(run: Callable[..., ExportLoop], reader: Reader) -> None:
    loop = run()
    for _ in range(5):
        loop.step_reported()
    time.sleep(0.1)
    assert reader.collected == []


def test_every_step_is_exported_but_no_two_exports_are_closer_than_the_pause(
    run: Callable[..., ExportLoop], reader: Reader
) -> None:
    loop = run(pause_s=0.2)
    for _ in range(60):
        last_step = time.monotonic()
        loop.step_reported()
        time.sleep(0.01)
    wait_until(lambda: reader.collected[-1] >= last_step)
    assert min(b - a for a, b in zip(reader.collected, reader.collected[1:], strict=False)) >= 0.195
    exports = len(reader.collected)
    time.sleep(0.3)
    assert len(reader.collected) == exports, "nothing new, nothing exported"


@pytest.mark.parametrize("steps", [0, 1, 2])
def test_a_stop_never_waits_for_the_pause(steps: int, run: Callable[..., ExportLoop], reader: Reader) -> None:
    """While the loop waits for a step, while it pauses after one, and with one more to export."""
    loop = run(pause_s=LONG_S)
    for _ in range(steps):
        loop.step_reported()
        wait_until(lambda: reader.collected)
    before = len(reader.collected)
    assert seconds_to_end(loop) < 5
    assert reader.closed
    assert len(reader.collected) == before + 1, "once: a slow collector has no time for more"


def test_a_stop_before_the_first_wait_is_seen(reader: Reader) -> None:
    loop = ExportLoop(reader.collect, reader.shutdown, LONG_S, LONG_S)
    loop.stop()
    loop.start()
    loop.join(2)
    assert not loop.is_alive()
    assert reader.collected


def test_a_flush_waits_for_an_export_that_begins_after_it(run: Callable[..., ExportLoop], reader: Reader) -> None:
    loop = run(pause_s=LONG_S)
    reader.gate.clear()
    loop.step_reported()
    reader.entered.wait(2)  # an export is under way, and may have missed the latest figures
    threading.Timer(0.1, reader.gate.set).start()
    assert loop.flush(5)
    assert len(reader.collected) == 2
    assert loop.flush(5)
    assert len(reader.collected) == 3


def test_a_flush_gives_up_in_time(run: Callable[..., ExportLoop], reader: Reader) -> None:
    loop = run()
    reader.gate.clear()
    begin = time.monotonic()
    assert loop.flush(0.1) is False
    assert loop.flush(0) is False
    assert time.monotonic() - begin < 5, "the export hangs for 10 s"


def test_a_failing_export_does_not_end_the_loop(
    run: Callable[..., ExportLoop], reader: Reader, failures: Counter
) -> None:
    reader.failing = True
    loop = run(interval_s=0.02)
    wait_until(lambda: len(reader.collected) >= 3)
    assert failures[("akka-otel-exporter", "ConnectionError")] >= 2
    seconds_to_end(loop)
    assert reader.closed


@pytest.mark.parametrize("interval_s", [1e-300, threading.TIMEOUT_MAX * 2, 1e300])
def test_any_interval_is_one_that_a_thread_can_wait_for(
    interval_s: float, run: Callable[..., ExportLoop], reader: Reader
) -> None:
    loop = run(interval_s=interval_s)
    time.sleep(0.05)
    assert loop.is_alive()
    assert seconds_to_end(loop) < 5


def test_a_closer_closes_when_it_is_told_to_and_is_no_reason_to_live_on(failures: Counter) -> None:
    closed = threading.Event()
    closer = Closer("traces", closed.set)
    closer.start()
    assert closer.daemon
    assert not closed.wait(0.05)
    seconds_to_end(closer)
    assert closed.is_set()

    failing = Closer("failing", lambda: 1 / 0)
    failing.start()
    seconds_to_end(failing)
    assert failures == {("akka-otel-failing", "ZeroDivisionError"): 1}
