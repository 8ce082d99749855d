"""Whether a collector accepts the telemetry: one warning when it stops, one line when it accepts it again."""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

from akka_otel_callbacks.common.log import logger
from akka_otel_callbacks.common.text import one_line

REJECTED = "rejected"
"""The kind of a reply that says that only a part was taken."""
INVALID = frozenset({"400", "INVALID_ARGUMENT"})
"""The kinds of a reply that says that the message is invalid. Some receivers take the rest of it all the same."""
REJECTED_FIELDS = "rejected_data_points", "rejected_spans", "rejected_log_records"
"""The fields of each signal's response with the number of rejected items."""
TOO_LARGE = re.compile(r"too (large|big)|larger than|exceeds maximum size", re.IGNORECASE)
"""The words by which receivers say that a message is too large. Only HTTP has a status of its own for it."""


@dataclass(frozen=True, slots=True)
class Reply:
    """The outcome of one attempt.

    Attributes:
        delivered: the receiver took all of it.
        reason: why it did not, or what it says although it did. One line, without secrets.
        kind: groups reasons that are the same trouble: the status, or the kind of error if nobody answered.
        status: the HTTP status, where there was one.
        retryable: another attempt may succeed.
        retry_after_s: how long the receiver wants to be left alone.
    """

    delivered: bool
    reason: str = ""
    kind: str = ""
    status: int | None = None
    retryable: bool = False
    retry_after_s: float | None = None

    @property
    def too_large(self) -> bool:
        """Whether the receiver may take the same content in smaller parts."""
        refused = not self.delivered and self.kind != REJECTED
        return refused and (self.status == 413 or bool(TOO_LARGE.search(self.reason)))

    @property
    def invalid(self) -> bool:
        """Whether the receiver will never take the message, and does not say which part it took."""
        return self.kind in INVALID and not self.too_large

    @property
    def final(self) -> bool:
        """Whether the message must not be sent again. The part that the receiver took would arrive twice, and it will
        never take the rest."""
        return self.delivered or self.kind == REJECTED or self.invalid

    @classmethod
    def to_accepted(cls, response: Any, status: int | None) -> Reply:
        """The reply of a receiver that accepted. Its response may say that it did not take everything."""
        partial = getattr(response, "partial_success", None)
        said = one_line(getattr(partial, "error_message", ""))
        rejected = max(getattr(partial, field, 0) for field in REJECTED_FIELDS)
        if not rejected:
            return cls(True, said, status=status)
        reason = f"it rejected {rejected} of the points, spans or log records: {said or 'no reason given'}"
        return cls(False, reason, kind=REJECTED, status=status)


class Acceptance:
    """Whether one collector accepts what is sent to it, and what people have been told about that."""

    def __init__(self) -> None:
        self._failing: set[object] = set()
        self._told: set[str] = set()

    @classmethod
    def of(cls, address: str) -> Acceptance:
        """The one object for a collector's address, so that its absence costs one line, and not one for each signal."""
        with _lock:
            if (known := _by_address.get(address)) is None:
                known = _by_address[address] = cls()
            return known

    def tell(self, exporter: object, target: object, reply: Reply) -> None:
        """Takes note of a reply. It logs the first failure of each kind, the first success after which no exporter
        fails any more, and once what a receiver says about a message that it took."""
        with _lock:
            if reply.delivered:
                back = self._is_last(exporter)
                new = bool(reply.reason) and self._is_new("said")
            else:
                back = False
                self._failing.add(exporter)
                new = self._is_new("away" if reply.retryable else reply.kind)
        if back:
            logger.info("%s accepts the telemetry again", target)
        if new and reply.delivered:
            logger.warning("%s accepts the telemetry, and says: %s", target, reply.reason)
        elif new:
            logger.warning(
                "%s %s (training is not affected; further failures are not logged): %s",
                target,
                "rejects the telemetry, which is dropped" if reply.invalid else "does not accept the telemetry",
                reply.reason,
            )

    def forget(self, exporter: object) -> None:
        """Forgets an exporter that sends no more."""
        with _lock:
            self._is_last(exporter)

    def _is_last(self, exporter: object) -> bool:
        """Takes an exporter from those that fail, and says whether none is left."""
        was_failing = exporter in self._failing
        self._failing.discard(exporter)
        if self._failing or not was_failing:
            return False
        self._told.clear()
        return True

    def _is_new(self, kind: str) -> bool:
        new = kind not in self._told
        self._told.add(kind)
        return new


_by_address: WeakValueDictionary[str, Acceptance] = WeakValueDictionary()
_lock = threading.Lock()
