"""A checkpoint operation as a `with` block."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextvars import ContextVar
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from akka_otel_callbacks.common.checkpoints.attempt import USUAL_REASON, Attempt, Reason
from akka_otel_callbacks.common.checkpoints.description import Description, shown, usable_value
from akka_otel_callbacks.common.checkpoints.where import lost, telemetry_of_run
from akka_otel_callbacks.common.clock import now_ns
from akka_otel_callbacks.common.guard import guarded
from akka_otel_callbacks.common.log import logger
from akka_otel_callbacks.common.numbers import number
from akka_otel_callbacks.common.vocabulary import names

if TYPE_CHECKING:
    from opentelemetry.trace import Span

    from akka_otel_callbacks.common.telemetry import Telemetry

Self = TypeVar("Self", bound="Operation")
FAILURES_KEPT = 16
"""How many of the latest failures within an operation are kept. Its own failure may be caused by one of them."""

_current: ContextVar[Operation | None] = ContextVar("checkpoint operation", default=None)
_refused: ContextVar[tuple[Operation, ...]] = ContextVar("entered while under way", default=())


class Operation:
    """Measures what happens within it. An exception makes it a failure, and is raised on unchanged.

    To enter it again is another attempt. To enter it while it is under way, also from another thread, is no attempt,
    and costs a warning. Whatever is wrong with the telemetry is logged and never raised.

    Args:
        operation: one of the registry's.
        description: what it is about. The operation around it fills the gaps.
        telemetry: publishes it; by default, the run's in this process. Without any, nothing is measured.
        parent: the operation that it is a part of; by default, the one that encloses it in this thread or task.
    """

    def __init__(
        self,
        operation: str,
        description: Description = Description(),  # noqa: B008 - it never changes
        telemetry: Telemetry | None = None,
        parent: Operation | None = None,
    ) -> None:
        self.operation = operation
        self._description, self._given, self._parent = description, telemetry, parent
        self._outer: Operation | None = None
        self._telemetry: Telemetry | None = None
        self._span: Span | None = None
        self._start_ns: int | None = None
        self._reason: str | None = None
        self._failures: deque[tuple[BaseException, str]] = deque(maxlen=FAILURES_KEPT)

    def describe(self, **more: Any) -> None:
        """Adds what became known on the way, such as `snapshot_id`. It takes the same arguments as the operation
        itself."""
        guarded(self._describe)(more)

    def failed(self, reason: str) -> None:
        """Makes it a failure, with or without an exception, for one of the registry's reasons. A reason that the
        registry does not have becomes `internal`, with a warning."""
        self._reason = usable_value(names.ATTR_CHECKPOINT_FAILURE_REASON, reason) or Reason.INTERNAL

    def __enter__(self: Self) -> Self:
        outer = _current.get()
        if self._start_ns is not None or (outer is not None and outer._is_part_of(self)):
            _refused.set((self, *_refused.get()))
            logger.warning("this %s is entered while under way, which is no attempt: make one for each", self.operation)
            return self
        self._outer = outer
        _current.set(self)
        self._begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        refused = _refused.get()
        if refused and refused[0] is self:
            _refused.set(refused[1:])
            return
        self._end(error)
        self._failures.clear()  # they hold their tracebacks, and those every variable on their way
        self._span = self._telemetry = self._start_ns = None
        _current.set(self._outer)
        self._outer = None

    @guarded
    def _describe(self, more: dict[str, Any]) -> None:
        self._description = self._description.with_more(**more)

    @guarded
    def _begin(self) -> None:
        self._reason = None
        outer = self._around()
        inherited = outer._telemetry if outer is not None else None
        self._telemetry = telemetry = self._given or inherited or telemetry_of_run()
        self._start_ns = now_ns()
        if telemetry is not None:
            self._span = telemetry.trace.begin(
                names.SPAN_CHECKPOINT_OPERATION.of(self.operation),
                self._start_ns,
                outer._span if outer is not None else None,
                {names.ATTR_CHECKPOINT_OPERATION.name: self.operation, **self._full_description().attributes()},
            )

    @guarded
    def _end(self, error: BaseException | None) -> None:
        if self._start_ns is None:
            return
        outer, reason = self._around(), self._failure_reason(error)
        if outer is not None and error is not None and reason is not None:
            outer._failures.append((error, reason))
        attempt = Attempt(
            operation=self.operation,
            description=self._description.within(outer._full_description()) if outer else self._description,
            start_ns=self._start_ns,
            end_ns=now_ns(),
            failure_reason=reason,
            error=type(error) if error is not None else None,
            moved_bytes=self._moved_bytes(),
        )
        if self._telemetry is not None and not self._telemetry.closed:
            attempt.publish(self._telemetry, self._span)
        elif (other := telemetry_of_run()) is not None:  # begun under a training that has ended since
            attempt.publish(other)
        else:
            lost(attempt)

    def _around(self) -> Operation | None:
        return self._parent if self._parent is not None else self._outer

    def _is_part_of(self, whole: Operation) -> bool:
        """Whether it is that operation, or belongs to it directly or through others."""
        found: Operation | None = self
        while found is not None and found is not whole:
            found = found._around()
        return found is whole

    def _full_description(self) -> Description:
        outer = self._around()
        return self._description if outer is None else self._description.within(outer._full_description())

    def _failure_reason(self, error: BaseException | None) -> str | None:
        """Why it failed. None if it did not. The first of these counts: the reason that was given, the reason of a
        failure within it, and the operation's usual reason."""
        if self._reason is not None or error is None:
            return self._reason
        within = {id(failure): reason for failure, reason in self._failures}
        found = next((within[id(cause)] for cause in _causes(error) if id(cause) in within), None)
        if found is not None:
            return found
        usual = USUAL_REASON.get(self.operation, Reason.INTERNAL)
        return usual if isinstance(error, Exception) else Reason.INTERNAL  # an interrupt is no fault of the storage

    def _moved_bytes(self) -> float | None:
        return None


class Transfer(Operation):
    """An operation that moves bytes between this machine and durable storage."""

    def __init__(
        self,
        operation: str,
        description: Description = Description(),  # noqa: B008 - it never changes
        telemetry: Telemetry | None = None,
        parent: Operation | None = None,
    ) -> None:
        super().__init__(operation, description, telemetry, parent)
        self._moved: float | None = None
        self._unknown = False
        self._moving = threading.Lock()

    def _begin(self) -> None:
        self._moved, self._unknown = None, False
        super()._begin()

    def moved(self, size_bytes: float) -> None:
        """Adds bytes that were really moved, from any thread and also before a failure. Bytes that were there already
        do not count. After a value that is no size, the amount counts as unknown and is not published."""
        size = number(size_bytes)
        with self._moving:
            if size is not None and 0 <= size < float("inf"):
                self._moved = (self._moved or 0) + size
            elif not self._unknown:
                self._unknown = True
                said = shown(size_bytes)
                logger.warning("%s is not a number of bytes: the size of this %s is left out", said, self.operation)

    def _moved_bytes(self) -> float | None:
        return None if self._unknown else self._moved


def is_within(operation: str) -> bool:
    """Whether this thread or task is within an operation of that name."""
    found = _current.get()
    while found is not None and found.operation != operation:
        found = found._outer
    return found is not None


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """The exception, what it was raised from, and so on."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__
