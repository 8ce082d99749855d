"""A step's figures of its graders, from the calls that scored its rollouts."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

from akka_otel_callbacks.common.graders.call import Call
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.step import RLStep

Type = names.RlGraderTokenType


def set_graders(step: RLStep, calls: Iterable[Call]) -> None:
    """Sets durations, failures and tokens. A term that nothing is known of has none."""
    durations: defaultdict[str, list[float]] = defaultdict(list)
    failures: Counter[tuple[str, str]] = Counter()
    tokens: Counter[tuple[str, str]] = Counter()
    for call in calls:
        durations[call.term] += [call.seconds] * call.rows
        if call.cause is not None:
            failures[call.term, call.cause] += call.rows
        for kind, count in ((Type.INPUT, call.input_tokens), (Type.OUTPUT, call.output_tokens)):
            if count is not None:
                tokens[call.term, kind] += count
    step.grader_duration = dict(durations) or None
    step.grader_failures, step.grader_tokens = dict(failures) or None, dict(tokens) or None
