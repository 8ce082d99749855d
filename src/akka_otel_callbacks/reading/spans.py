"""The spans of a run by name, as a tree."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.reading import fields
from akka_otel_callbacks.reading.attributes import labels
from akka_otel_callbacks.reading.fields import MALFORMED

FAILED = 2
"""OTLP's code of an error."""
DEEPEST = 8
"""Spans of ours stand under three others at most; what is deeper, in whoever's file, is shown at this depth."""


@dataclass(slots=True)
class Branch:
    """All spans of one name that stand under the same branch. Times are in seconds."""

    name: str
    count: int = 0
    total_s: float = 0.0
    longest_s: float = 0.0
    failed: int = 0
    unfinished: int = 0
    under: dict[str, Branch] = field(default_factory=dict)

    def add(self, span: Span) -> None:
        self.count += 1
        self.total_s += span.seconds
        self.longest_s = max(self.longest_s, span.seconds)
        self.failed += span.failed
        self.unfinished += span.unfinished

    def all(self, depth: int = 0) -> Iterator[tuple[int, Branch]]:
        """The branches under it, each before those under it in turn, with how deep they are."""
        for branch in self.under.values():
            yield depth, branch
            yield from branch.all(depth + 1)


@dataclass(frozen=True, slots=True)
class Span:
    """Times are in Unix nanoseconds. `error_type` is the class of the exception that ended it, empty where there is
    none."""

    trace_id: str
    span_id: str
    parent_id: str
    name: str
    start: int
    end: int
    failed: bool
    unfinished: bool
    error_type: str = ""
    pause_policy: str = ""

    @property
    def seconds(self) -> float:
        return max(self.end - self.start, 0) / 1e9


class Traces:
    """The spans of one run. `jobs` are those of whole trainings."""

    def __init__(self) -> None:
        self._by_trace: dict[str, list[Span]] = {}
        self.jobs: list[Span] = []

    def add(self, spans: Iterable[Mapping[str, Any]]) -> None:
        """Adds those of a document. What is no span is left out."""
        for item in spans:
            try:
                span = _span(item)
            except MALFORMED:
                continue
            self._by_trace.setdefault(span.trace_id, []).append(span)
            if span.name == names.SPAN_JOB.name:
                self.jobs.append(span)

    def trees(self) -> dict[str, Branch]:
        """The spans of each trace by its ID; a branch without a name has all of one."""
        return {trace_id: _tree(spans) for trace_id, spans in self._by_trace.items()}


def _span(span: Mapping[str, Any]) -> Span:
    start, end = fields.whole(span, "startTimeUnixNano"), fields.whole(span, "endTimeUnixNano")
    attributes = dict(labels(span))
    return Span(
        fields.text(span, "traceId"),
        fields.text(span, "spanId"),
        fields.text(span, "parentSpanId"),
        fields.text(span, "name"),
        start,
        end,
        fields.whole(fields.mapping(span, "status"), "code") == FAILED,
        attributes.get(names.ATTR_SPAN_UNFINISHED.name) == "True",
        attributes.get(names.ATTR_ERROR_TYPE.name, ""),
        attributes.get(names.ATTR_PAUSE_POLICY.name, ""),
    )


def _tree(spans: list[Span]) -> Branch:
    """The tree below the spans that have no parent in the file. Spans that stand under themselves, as a broken file may
    have them, are left out."""
    root, known = Branch(""), {span.span_id for span in spans}
    children: dict[str, list[Span]] = {}
    for span in sorted(spans, key=lambda span: span.start):
        children.setdefault(span.parent_id if span.parent_id in known else "", []).append(span)
    todo = [(root, 0, span) for span in reversed(children.pop("", []))]
    while todo:
        above, depth, span = todo.pop()
        branch = above.under.setdefault(span.name, Branch(span.name))
        branch.add(span)
        below = (branch, depth + 1) if depth < DEEPEST else (above, depth)
        todo.extend((*below, child) for child in reversed(children.pop(span.span_id, [])))
    return root
