"""How many staged snapshots await durable publication, read anew at every collection."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from akka_otel_callbacks.common.checkpoints.where import telemetry_of_run
from akka_otel_callbacks.common.numbers import number
from akka_otel_callbacks.common.run import current
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.points import NO_ATTRIBUTES, Point

if TYPE_CHECKING:
    from akka_otel_callbacks.common.telemetry import Telemetry

_sources: list[Pending] = []
_observed = False


class Pending:
    """Publishes a number until it is closed; several in one process add up.

    Args:
        count: gives it, on an exporter's thread. While it raises or gives no number, there is no figure.
    """

    def __init__(self, count: Callable[[], Any]) -> None:
        self.count = count
        _sources.append(self)
        _observe_once()

    def close(self) -> None:
        if self in _sources:
            _sources.remove(self)

    def __enter__(self) -> Pending:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _observe_once() -> None:
    global _observed
    if not _observed:
        _observed = True
        current.for_each(_observe)


def _observe(telemetry: Telemetry) -> None:
    telemetry.observe(names.CHECKPOINT_PENDING, lambda: _points(telemetry))


def _points(telemetry: Telemetry) -> Sequence[Point]:
    """If a process has several telemetries, one of them publishes the number, so that a sum over instances counts each
    snapshot once. The last of them to end has it in its last export."""
    if not _sources or (telemetry_of_run() or telemetry) is not telemetry:
        return ()
    counts = [number(source.count()) for source in tuple(_sources)]
    known = [count for count in counts if count is not None and count >= 0]
    return ((sum(known), NO_ATTRIBUTES),) if len(known) == len(counts) else ()
