"""What a metric is called in Prometheus, by the way that it takes there."""

from __future__ import annotations

import re
from typing import Literal, Protocol

Dialect = Literal["collector", "python"]

UNITS = {
    "": "",
    "1": "",
    "s": "seconds",
    "By": "bytes",
    "Cel": "celsius",
    "W": "watts",
    "J": "joules",
    "Hz": "hertz",
}
PER_UNITS = {"": "", "s": "per_second"}


class Named(Protocol):
    """What a metric's name in Prometheus depends on: the registry's own metric has it, and the package's."""

    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def unit(self) -> str: ...


def prometheus_name(metric: Named, dialect: Dialect) -> str:
    """The metric's name in Prometheus; of a histogram, what `_bucket`, `_count` and `_sum` follow.

    The rules are those of prometheus/otlptranslator, which collectors and Prometheus share. A word that the name has
    already is not added again, and the last word moves there: the gauge `clip_ratio.high` of unit 1 is
    `clip_high_ratio`.

    Args:
        dialect: `collector` for OTLP through a collector or into Prometheus itself, with suffixes; `python` for the
            endpoint of opentelemetry-exporter-prometheus, which knows no `ratio`.

    Raises:
        ValueError: for a unit whose word is not known.
    """
    words = re.split(r"[^a-zA-Z0-9]+", metric.name)
    words += [word for word in _unit_words(metric) if word and word not in words]
    last = _last_word(metric, dialect)
    return "_".join([word for word in words if word != last] + [last] if last else words)


def prometheus_label(attribute: str) -> str:
    """The label that an attribute becomes."""
    return re.sub(r"[^a-zA-Z0-9]+", "_", attribute)


def _unit_words(metric: Named) -> tuple[str, str]:
    amount, _, per = re.sub(r"\{[^}]*\}", "", metric.unit).partition("/")
    if amount not in UNITS or per not in PER_UNITS:
        raise ValueError(f"{metric.name}: no Prometheus word is known for the unit {metric.unit!r}")
    return UNITS[amount], PER_UNITS[per]


def _last_word(metric: Named, dialect: Dialect) -> str:
    if metric.kind == "counter":
        return "total"
    return "ratio" if metric.kind == "gauge" and metric.unit == "1" and dialect == "collector" else ""
