"""The attributes of an operation, checked."""

from __future__ import annotations

from akka_otel_callbacks.common.service.checks import known
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.names import ServiceOutcome
from akka_otel_callbacks.common.vocabulary.points import AttributeValue


def attributes_of(operation: str, stage: str, outcome: str, reason: str | None) -> dict[str, AttributeValue]:
    """The attributes of an operation's figures. Only one that did not succeed has a reason, and always has.

    Raises:
        ValueError: a word is unknown, or the reason is missing or too much.
    """
    attributes: dict[str, AttributeValue] = {
        names.ATTR_SERVICE_OPERATION.name: known(names.ATTR_SERVICE_OPERATION, operation),
        names.ATTR_SERVICE_STAGE.name: known(names.ATTR_SERVICE_STAGE, stage),
        names.ATTR_SERVICE_OUTCOME.name: known(names.ATTR_SERVICE_OUTCOME, outcome),
    }
    if outcome == ServiceOutcome.SUCCEEDED:
        if reason is not None:
            raise ValueError(f"an operation that {outcome} has no failure reason, and {reason!r} is given")
        return attributes
    if reason is None:
        reasons = ", ".join(names.ATTR_SERVICE_FAILURE_REASON.values)
        raise ValueError(f"an operation whose outcome is {outcome} needs a reason, one of {reasons}")
    attributes[names.ATTR_SERVICE_FAILURE_REASON.name] = known(names.ATTR_SERVICE_FAILURE_REASON, reason)
    return attributes
