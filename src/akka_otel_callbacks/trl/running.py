"""Finds the trainer, which no event hands over, and knows the calls of `train` that are under way."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from akka_otel_callbacks.common.frames import variables
from akka_otel_callbacks.common.guard import guarded
from akka_otel_callbacks.trl.taps import Arguments, Call, tap

if TYPE_CHECKING:
    from transformers import Trainer, TrainerState

_changing = threading.RLock()
"""Held while a training is added or removed. Whoever looks only reads what is never changed in place."""
_running: tuple[Running, ...] = ()


def find_trainer(state: TrainerState | None = None) -> Trainer | None:
    """The trainer that a state belongs to and that is in its `train`; else the one whose method is being called. The
    latter is read from the callers' frames: while a trainer is made, and in an evaluation outside of a training, no
    method that could be tapped before has handed it over."""
    from transformers import Trainer

    if (run := running(state)) is not None:
        return run.trainer
    return next((found for called in variables("self") if isinstance(found := called["self"], Trainer)), None)


class Running:
    """One call of a trainer's `train`, from its begin to its end.

    Attributes:
        arguments: what the innermost `train` of the trainer's classes was called with.
        met: the callbacks that know of the call.
    """

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer
        self.arguments: Arguments = (), {}
        self.met: list[object] = []
        self._ends: list[Callable[[BaseException | None], object]] = []

    def when_ended(self, end: Callable[[BaseException | None], object]) -> None:
        """An exception or Ctrl-C ends a training without an event: `end` is called at every end, with its cause."""
        self._ends.append(guarded(end))

    def end(self, error: BaseException | None) -> None:
        for end in self._ends:
            end(error)


def running(state: TrainerState | None) -> Running | None:
    """The training that a state belongs to."""
    return next((run for run in _running if state is not None and getattr(run.trainer, "state", None) is state), None)


def tap_train(owner: type) -> bool:
    """Has each call of `train` be a `Running`."""
    return tap(owner, "train", _run)


def _run(call: Call, name: str) -> Call:
    def tap(*args: Any, **kwargs: Any) -> Any:
        return run_call(call, args, kwargs)

    return tap


def run_call(call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Calls `train`, with a `Running` for as long as it takes."""
    global _running
    owner = args[0] if args else kwargs.get("self")
    outer = next((run for run in _running if run.trainer is owner), None)
    if outer is not None:  # the same training, in the class above
        outer.arguments = args, kwargs
        return call(*args, **kwargs)
    run = Running(owner)
    run.arguments = args, kwargs
    with _changing:
        _running = (*_running, run)
    try:
        result = call(*args, **kwargs)
    except BaseException as error:
        run.end(error)
        raise
    else:
        run.end(None)
        return result
    finally:
        with _changing:
            _running = tuple(other for other in _running if other is not run)
