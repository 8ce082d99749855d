"""The IDs of spans and traces."""

from __future__ import annotations

import secrets

from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.trace import SpanContext


class UnseededIds(IdGenerator):
    """IDs that a training's seed does not reach. The SDK draws them from `random`, which trainers seed, so that every
    rank and every run of one seed would write the same trace."""

    def generate_span_id(self) -> int:
        return secrets.randbits(64) or 1

    def generate_trace_id(self) -> int:
        return secrets.randbits(128) or 1


class Planned(UnseededIds):
    """IDs of spans of which the first one's are known beforehand.

    Args:
        first: the span with these IDs. If it is not valid, the first span gets new IDs, too.
    """

    def __init__(self, first: SpanContext) -> None:
        self._trace_ids = [first.trace_id] if first.is_valid else []
        self._span_ids = [first.span_id] if first.is_valid else []

    def generate_span_id(self) -> int:
        return self._span_ids.pop() if self._span_ids else super().generate_span_id()

    def generate_trace_id(self) -> int:
        return self._trace_ids.pop() if self._trace_ids else super().generate_trace_id()
