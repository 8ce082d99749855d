"""How a grader says that it has no score for a rollout."""

from __future__ import annotations

from akka_otel_callbacks.common.vocabulary import names

CAUSES = names.ATTR_RL_GRADER_FAILURE_CAUSE.values


class GraderFailure(Exception):
    """Raised by a rule or a parser: this rollout cannot be scored. It counts zero for the term, and the failure is
    counted under its cause.

    Args:
        cause: `timeout`, `unavailable`, `unreadable` or `ungradable`.

    Raises:
        ValueError: another cause.
    """

    def __init__(self, cause: str) -> None:
        if cause not in CAUSES:
            raise ValueError(f"{cause!r} is no cause of a grader's failure. There are: {', '.join(CAUSES)}")
        super().__init__(cause)
        self.cause = cause
