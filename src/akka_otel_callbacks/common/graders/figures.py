"""A step's figures of its graders, from the calls that scored its rollouts."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from akka_otel_callbacks.common.graders.call import Call
from akka_otel_callbacks.common.graders.failure import CAUSES
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.step import RLStep

Type = names.RlGraderTokenType


def set_graders(step: RLStep, calls: Sequence[Call]) -> None:
    """Sets durations, failures and tokens, where there are calls. A term that nothing is known of has none. One whose
    failures would be known has each cause from zero, so that an alert on the increase sees the first failure."""
    if not calls:
        return
    durations: defaultdict[str, list[float]] = defaultdict(list)
    failures: Counter[tuple[str, str]] = Counter()
    tokens: Counter[tuple[str, str]] = Counter()
    known: set[str] = set()
    """Terms whose failures would be known."""
    for call in calls:
        if call.may_fail:
            known.add(call.term)
        durations[call.term] += [call.seconds] * call.rows
        if call.cause is not None:
            failures[call.term, call.cause] += call.rows
        for kind, count in ((Type.INPUT, call.input_tokens), (Type.OUTPUT, call.output_tokens)):
            if count is not None:
                tokens[call.term, kind] += count
    for term in sorted(known):
        failures.update(no_failures(term))
    step.grader_duration = dict(durations) or None
    step.grader_failures, step.grader_tokens = dict(failures) or None, dict(tokens) or None


def no_failures(term: str) -> dict[tuple[str, str], int]:
    """The counts of a term that has not failed."""
    return dict.fromkeys(((term, cause) for cause in CAUSES), 0)
