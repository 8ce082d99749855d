"""What a metric is called in Prometheus, by the way that it takes there."""

from __future__ import annotations

import re
from typing import Literal, Protocol

Dialect = Literal["collector", "python"]

UNITS = {"s": "seconds", "By": "bytes", "Cel": "celsius", "W": "watts", "J": "joules", "Hz": "hertz"}


class Named(Protocol):
    """What a metric's name in Prometheus depends on: of the registry's metric and of the package's alike."""

    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def unit(self) -> str: ...


def prometheus_name(metric: Named, dialect: Dialect) -> str:
    """The metric's name in Prometheus; of a histogram, without `_bucket`, `_count` and `_sum`.

    Args:
        dialect: `collector` for OTLP through a collector or into Prometheus itself, with suffixes; `python` for the
            endpoint of opentelemetry-exporter-prometheus, which leaves `_ratio` out.

    Raises:
        ValueError: for a unit that is in none of the tables.
    """
    words = [_sanitized(metric.name), *_unit_words(metric, dialect)]
    if metric.kind == "counter":
        words.append("total")
    return "_".join(words)


def prometheus_label(attribute: str) -> str:
    """The label that an attribute becomes."""
    return _sanitized(attribute)


def _sanitized(name: str) -> str:
    return re.sub(r"[^a-zA-Z0-9_]", "_", name)


def _unit_words(metric: Named, dialect: Dialect) -> list[str]:
    amount, _, per = re.sub(r"\{[^}]*\}", "", metric.unit).partition("/")
    if amount == "1":
        return ["ratio"] if dialect == "collector" and metric.kind == "gauge" else []
    try:
        return [UNITS[amount]] * bool(amount) + (["per", {"s": "second"}[per]] if per else [])
    except KeyError as error:
        raise ValueError(f"{metric.name}: no Prometheus name is known for the unit {metric.unit!r}") from error
