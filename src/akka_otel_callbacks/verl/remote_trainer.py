"""Ends a run whose trainer is an actor that the launched one makes, as fully_async's is.

verl never finishes such a trainer's `Tracking`, and Ray ends its process with SIGKILL. So the actor that made it tells
it the end. That one alone knows what went wrong elsewhere, such as in the actor that generates.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from akka_otel_callbacks.common.guard import guarded
from akka_otel_callbacks.common.patching.calls import Call, around
from akka_otel_callbacks.common.run.handed_on import is_active
from akka_otel_callbacks.verl.state import STATE

TRAINER = "Trainer"
"""What the names of verl's trainers have in common."""
TIMEOUT_S = 7.0
"""How long the end may take, as elsewhere: five seconds for the workers, and two for its own exports. A trainer that is
in an update when the other actor fails has to end it first."""


@guarded
def watch(launched: Any) -> None:
    """Hooks the class of an actor that is yet to be launched, which Ray pickles with the hook."""
    kind = launched.__ray_metadata__.modified_class
    if hasattr(kind, "run"):
        around(kind, "run", _end_after)


def remember(make: Call) -> None:
    """Keeps the handle of a trainer that this process has made."""
    if is_active() and TRAINER in getattr(getattr(make.owner, "__ray_metadata__", None), "class_name", ""):
        STATE.remote_trainers.append(make.result)


def end(trainer: Any, error: str | None) -> None:
    """Ends the run, in the trainer's process.

    Args:
        trainer: the actor, from Ray.
        error: the class of what ended it, if it did not end well. The exception itself may quote the data.
    """
    from akka_otel_callbacks.verl.driver.tracking import end_all

    end_all(None if error is None else type(error, (Exception,), {})())


def _end_after(run: Call) -> Iterator[None]:
    yield
    trainers, STATE.remote_trainers = STATE.remote_trainers, []
    if not trainers:
        return
    import ray

    error = run.error
    if isinstance(error, ray.exceptions.RayTaskError):  # raised by an actor, and brought here
        error = error.cause
    name = None if error is None else type(error).__name__
    calls = [trainer.__ray_call__.remote(end, name) for trainer in trainers]
    ray.wait(calls, num_returns=len(calls), timeout=TIMEOUT_S)
