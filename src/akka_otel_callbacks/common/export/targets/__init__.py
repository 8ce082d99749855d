"""The kinds of places that a signal goes to."""

from __future__ import annotations

from collections.abc import Mapping

from akka_otel_callbacks.common.export.targets.console import ConsoleTarget
from akka_otel_callbacks.common.export.targets.file import FileTarget
from akka_otel_callbacks.common.export.targets.otlp import OtlpTarget
from akka_otel_callbacks.common.export.targets.prometheus import PrometheusTarget
from akka_otel_callbacks.common.export.targets.target import Target

NONE = "none"
KINDS: Mapping[str, type[Target]] = {
    kind.kind: kind for kind in (OtlpTarget, ConsoleTarget, PrometheusTarget, FileTarget)
}
"""The kinds, by the word that variables such as `OTEL_METRICS_EXPORTER` have for them."""


def words(signal: str) -> tuple[str, ...]:
    """The words that the variable of a signal may have."""
    return (*(word for word, kind in KINDS.items() if signal in kind.signals), NONE)
