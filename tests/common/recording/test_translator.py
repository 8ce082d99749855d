"""When the translator's thread sleeps, wakes and gives way. The tests run its loop themselves, with a bell and a clock
of their own, so no time decides."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from akka_otel_callbacks.common.recording import translator
from akka_otel_callbacks.common.recording.recorder import Recorder
from akka_otel_callbacks.common.recording.translator import NAP_S, PAUSE_S, TURN_S, Reason, Translator
from akka_otel_callbacks.common.vocabulary.step import RLStep

SLEEP = None


class Nothing:
    """A capture. It takes some time to deliver, or none."""

    def __init__(self, work: Callable[[], object] = lambda: None) -> None:
        self.work = work

    def deliver(self, recorder: Recorder) -> None:
        self.work()


class Bell:
    """Notes each wait for it, with how long it may last, and does next what the test says."""

    def __init__(self, translator: Translator, *then: Callable[[], object]) -> None:
        self.waits: list[float | None] = []
        self.rung = 0
        self._then = iter(then)
        translator._bell = self  # type: ignore[assignment]

    def acquire(self, timeout: float | None = SLEEP) -> None:
        self.waits.append(timeout)
        next(self._then)()

    def release(self) -> None:
        self.rung += 1


@pytest.fixture
def idle() -> Translator:
    """One whose thread is not started."""
    return Translator(Recorder(RLStep), [])


def test_it_naps_while_steps_come_and_then_sleeps_until_it_is_woken(idle: Translator) -> None:
    def step() -> None:
        idle.add(Nothing(), step=True)

    def nothing() -> None:
        pass

    bell = Bell(idle, step, nothing, step, nothing, nothing, nothing, idle.stop)
    idle.run()
    assert bell.waits == [SLEEP, *[NAP_S] * 5, SLEEP]
    assert bell.rung == 2, "the first step wakes it, the one within a nap does not, and the end does"
    assert idle.waiting() == 0


def test_an_end_within_a_nap_takes_no_further_nap(idle: Translator) -> None:
    bell = Bell(idle, lambda: idle.add(Nothing(), step=True), idle.stop)
    idle.run()
    assert bell.waits == [SLEEP, NAP_S]


class Falling(Translator):
    """Gets a step right before it says that it sleeps, so that nobody wakes it."""

    comes: Nothing | None = None

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "_asleep" and value and (step := self.comes) is not None:
            self.comes = None
            self.add(step, step=True)
        super().__setattr__(name, value)


def test_a_step_that_comes_as_it_falls_asleep_keeps_it_awake() -> None:
    falling = Falling(Recorder(RLStep), [])
    bell = Bell(falling, lambda: None)
    falling.comes = Nothing(falling.stop)
    falling.run()
    assert bell.waits == [NAP_S]


def test_with_many_steps_it_gives_way_after_each_turn(idle: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    now, pauses = [0.0], list[float]()

    def work() -> None:
        now[0] += TURN_S / 2

    monkeypatch.setattr(translator, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=pauses.append))
    for _ in range(9):
        idle.add(Nothing(work), step=False)
    idle.stop()
    idle.run()
    assert pauses == [PAUSE_S] * 3, "after the third, the sixth and the ninth: two take a turn, and no more"


def test_it_has_caught_up_where_nothing_waits(idle: Translator) -> None:
    assert idle.catch_up(0)
    idle.add(Nothing(), step=False)
    assert not idle.catch_up(0)


def test_nothing_is_said_where_nothing_is_missing(idle: Translator, log: pytest.LogCaptureFixture) -> None:
    idle.say_what_is_missing()
    assert not log.records
    idle.add(Nothing(), step=False)
    idle.say_what_is_missing()
    (line,) = log.messages
    assert line.endswith(": 1")


def test_that_steps_come_too_fast_is_said_once(idle: Translator, log: pytest.LogCaptureFixture) -> None:
    idle.stop()
    for lost, lines in ((0, 0), (1, 1), (1, 1)):
        idle._recorder.without_figures[Reason.OVERFLOW] += lost
        idle.add(Nothing(), step=False)
        idle.run()
        assert len(log.records) == lines
