"""The attributes of points. Their values come from a user's data: names of reward terms, of tools, of data sets."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from akka_otel_callbacks.common.log import logger
from akka_otel_callbacks.common.text import label
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.metric import Attribute, Metric
from akka_otel_callbacks.common.vocabulary.points import Attributes, AttributeValue, Point

MOST_LABELS = 200
"""Values of one attribute in a run. Each is a series in every export, and stays one."""
NEVER_TOO_MANY = names.RlTerm.TOTAL
"""The whole is shown, however many parts it has and in whatever order they come."""
LARGEST_NUMBER = 2**63


class Labels:
    """The values that a run has used, and what was left out because there were too many."""

    def __init__(self) -> None:
        self.left_out: dict[Metric, int] = {}
        self._attributes: defaultdict[Attribute, dict[Any, Attributes]] = defaultdict(dict)

    def of(self, metric: Metric, attribute: Attribute, value: Any) -> Attributes | None:
        """The attributes of a point with this value, made once for each. None, counted, where the attribute has
        `MOST_LABELS` values already."""
        known = self._attributes[attribute]
        found = known.get(value)
        if found is None and (len(known) < MOST_LABELS or value == NEVER_TOO_MANY):
            found = known[value] = {attribute.name: _clean(value)}
        if found is None:
            self._leave_out(metric, attribute)
        return found

    def overflow_points(self) -> tuple[Point, ...]:
        """What was left out, by metric."""
        return tuple(
            (count, {names.ATTR_TELEMETRY_METRIC.name: metric.name}) for metric, count in self.left_out.items()
        )

    def _leave_out(self, metric: Metric, attribute: Attribute) -> None:
        if not self.left_out:
            logger.warning(
                "%s has more than %d values: figures of further ones are left out and counted in %s",
                attribute.name,
                MOST_LABELS,
                names.TELEMETRY_OVERFLOW.name,
            )
        self.left_out[metric] = self.left_out.get(metric, 0) + 1


def clean(attributes: Attributes) -> Attributes:
    """The same attributes with values that every exporter takes."""
    found = {name: _clean(value) for name, value in attributes.items()}
    return attributes if all(value is found[name] for name, value in attributes.items()) else found


def _clean(value: Any) -> AttributeValue:
    """A number stays one. Anything else becomes text: an exporter that cannot take it would fail as a whole."""
    if isinstance(value, (bool, float)) or (isinstance(value, int) and abs(value) < LARGEST_NUMBER):
        return value
    return label(value if isinstance(value, str) else str(value))
