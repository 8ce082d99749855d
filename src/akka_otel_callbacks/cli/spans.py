"""Reads a run's `traces*.jsonl`: its spans by name, as a tree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from akka_otel_callbacks.cli import fields
from akka_otel_callbacks.cli.lines import MALFORMED, Labels, entries, labels
from akka_otel_callbacks.common.vocabulary import names

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

    def add(self, span: _Span) -> None:
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
class _Span:
    span_id: str
    parent_id: str
    name: str
    start: int
    seconds: float
    failed: bool
    unfinished: bool


def read(folder: Path, run: Mapping[str, str]) -> dict[str, Branch]:
    """The traces of a run by their ID; a branch without a name has all of one.

    Args:
        folder: where the run's files are.
        run: attributes that the resource of its spans has.
    """
    by_trace: dict[str, list[_Span]] = {}
    for resource, spans in entries(folder, "traces"):
        if run.items() <= dict(resource).items():
            for span in spans:
                try:
                    by_trace.setdefault(fields.text(span, "traceId"), []).append(_span(span))
                except MALFORMED:
                    continue
    return {trace_id: _tree(spans) for trace_id, spans in by_trace.items()}


def _span(span: Mapping[str, Any]) -> _Span:
    start, end = fields.whole(span, "startTimeUnixNano"), fields.whole(span, "endTimeUnixNano")
    attributes: Labels = labels(span)
    return _Span(
        fields.text(span, "spanId"),
        fields.text(span, "parentSpanId"),
        fields.text(span, "name"),
        start,
        max(end - start, 0) / 1e9,
        fields.whole(fields.mapping(span, "status"), "code") == FAILED,
        (names.ATTR_SPAN_UNFINISHED.name, "True") in attributes,
    )


def _tree(spans: list[_Span]) -> Branch:
    """From those whose parent is elsewhere, downwards. What stands under itself, in a file of whoever's, is left
    out."""
    root, known = Branch(""), {span.span_id for span in spans}
    children: dict[str, list[_Span]] = {}
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
