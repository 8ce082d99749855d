"""What ends with the telemetry: it is left behind where it hangs, and fails alone."""

from __future__ import annotations

import re
import signal
import threading
import time
from collections.abc import Callable

import pytest

from akka_otel_callbacks.common.telemetry import Telemetry
from tests.common.reports import Report, grpo_step
from tests.support.otlp_sink import otlp_sink, silent

Start = Callable[..., Telemetry]


def test_a_hook_that_hangs_does_not_hold_the_end(start: Start, log: pytest.LogCaptureFixture) -> None:
    telemetry, released, ended = start(), threading.Event(), []
    telemetry.when_closed(lambda: ended.append("before"))
    telemetry.when_closed(lambda: released.wait(60))
    begun = time.monotonic()
    telemetry.close(timeout_s=0.5)
    assert time.monotonic() - begun < 30, "the hook hangs for 60 s"
    released.set()
    assert ended == ["before"]
    assert "did not end within 0.5 s" in log.text


def test_a_hook_that_fails_is_reported_and_the_others_run(start: Start, failures: object) -> None:
    telemetry, ended = start(), []

    def fail() -> None:
        raise RuntimeError("no driver")

    telemetry.when_closed(fail)
    telemetry.when_closed(lambda: ended.append("after"))
    telemetry.close()
    assert ended == ["after"]
    assert failures == {("the end of a source", "RuntimeError"): 1}


def test_hooks_come_after_the_last_export(start: Start) -> None:
    with otlp_sink() as sink:
        telemetry = start(environ={"OTEL_EXPORTER_OTLP_ENDPOINT": sink.http})
        telemetry.capture(Report(grpo_step(1)), step=True)
        arrived: list[int] = []
        telemetry.when_closed(lambda: arrived.append(len(sink.metrics())))
        telemetry.close()
        assert arrived == [len(sink.metrics())]


def test_hooks_have_their_turn_where_a_collector_takes_all_the_time(start: Start) -> None:
    with silent() as url:
        telemetry = start(environ={"OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_EXPORTER_OTLP_TIMEOUT": "3"})
        telemetry.capture(Report(grpo_step(1)), step=True)
        ended = threading.Event()
        telemetry.when_closed(ended.set)
        telemetry.close()
        assert ended.wait(30)
        for closer in telemetry._threads:  # its warning would come in the middle of another test
            closer.join(30)


def test_a_person_who_interrupts_the_wait_is_told_what_was_not_sent(
    start: Start, log: pytest.LogCaptureFixture
) -> None:
    """And hooks have their turn."""
    with silent() as url:
        telemetry = start(environ={"OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_EXPORTER_OTLP_TIMEOUT": "1"})
        telemetry.capture(Report(grpo_step(1)), step=True)
        ended, person = threading.Event(), threading.main_thread().ident
        telemetry.when_closed(ended.set)
        threading.Timer(0.2, lambda: signal.pthread_kill(person or 0, signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            telemetry.close(timeout_s=60)
        assert ended.wait(5)
        (line,) = [record.getMessage() for record in log.records if "not sent" in record.getMessage()]
        assert line.startswith(f"1 step was not sent to otlp http/protobuf {url}")
        waited = float(re.search(r"within ([\d.]+) s", line)[1])  # type: ignore[index]
        assert waited < 60, "it says how long it did wait"
        telemetry.close()
        for closer in telemetry._threads:  # its warning would come in the middle of another test
            closer.join(30)
