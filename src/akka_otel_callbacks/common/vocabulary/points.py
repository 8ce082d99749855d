"""Values with their attributes, as a metric has them at one moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from akka_otel_callbacks.common.vocabulary.metric import Metric

AttributeValue = str | int | float | bool
Attributes = Mapping[str, AttributeValue]
Point = tuple[float, Attributes]
Figures = Mapping[Metric, Sequence[Point]]
NO_ATTRIBUTES: Attributes = {}
