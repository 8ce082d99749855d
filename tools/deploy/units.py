"""How Grafana shows a unit of the registry."""

from __future__ import annotations

from tools.model import Metric

UNITS = {"s": "s", "By": "bytes", "1": "percentunit", "Hz": "hertz", "W": "watt", "J": "joule", "Cel": "celsius"}
"""Grafana's name of each unit that it knows."""
ANNOTATIONS = {"{rate}": "sci"}
"""Of what is counted, where a plain number reads badly: a learning rate is 1e-6."""
PLAIN = "short"
"""A number with a thousand as 1 K."""


def grafana_unit(metric: Metric) -> str:
    """Grafana's unit of a metric.

    Raises:
        ValueError: for a unit that neither counts something, such as `{step}`, nor is known to Grafana.
    """
    if metric.unit.startswith("{"):
        return ANNOTATIONS.get(metric.unit, PLAIN)
    if metric.unit not in UNITS:
        raise ValueError(f"{metric.name}: no unit of Grafana is known for {metric.unit!r}")
    return UNITS[metric.unit]


def axis_label(metric: Metric) -> str:
    """What stands beside the axis where Grafana's unit does not say what is counted, such as `token/s`."""
    return metric.unit.replace("{", "").replace("}", "") if metric.unit.startswith("{") else ""
