"""One term scoring one rollout, on the clock."""

from __future__ import annotations

from time import perf_counter
from types import TracebackType

from akka_otel_callbacks.common.graders.call import Call
from akka_otel_callbacks.common.graders.failure import GraderFailure
from akka_otel_callbacks.common.graders.ledger import note


class Scoring:
    """Times the block, and notes it as a call: one that gave a score, or one that raised `GraderFailure`, which ends
    here. Any other exception goes through, and nothing is noted.

    Args:
        term: the term's label.
        rows: how many rollouts are scored at once.
    """

    __slots__ = ("_rows", "_start", "_term", "failed", "input_tokens", "output_tokens")

    def __init__(self, term: str, rows: int = 1) -> None:
        self._term, self._rows = term, rows
        self._start = 0.0
        self.failed = False
        self.input_tokens: int | None = None
        self.output_tokens: int | None = None

    def __enter__(self) -> Scoring:
        self._start = perf_counter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        seconds = perf_counter() - self._start
        cause = error.cause if isinstance(error, GraderFailure) else None
        self.failed = cause is not None
        if self._rows and (error is None or self.failed):
            tokens = self.input_tokens, self.output_tokens
            note(Call(self._term, seconds / self._rows, self._rows, cause, *tokens, may_fail=True))
        return self.failed
