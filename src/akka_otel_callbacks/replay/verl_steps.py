"""Rows of a verl log as steps, through verl's own tables."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from akka_otel_callbacks.common.numbers import number
from akka_otel_callbacks.common.vocabulary.step import RLStep, SFTStep, Step
from akka_otel_callbacks.replay.log import Row, config_of
from akka_otel_callbacks.verl.driver.translation import LogCall, RLTranslation, SFTTranslation, Translation
from akka_otel_callbacks.verl.driver.vocabulary import EARLY_TIMING, RL_STEP_KEY, SFT_STEP_KEY
from akka_otel_callbacks.verl.settings import is_rl

EARLY_STEP_KEY = "critic/score/mean"
"""A key that every step of a reinforcement trainer has. Up to 0.3, the rows have no key for their number."""
EARLY_KL, EARLY_KL_WEIGHT = "critic/kl", "critic/kl_coeff"
TURNS, ONE_ANSWER, LENGTHS = "num_turns/max", 2, "response_length/"
"""verl counts what answers the model, such as a tool's response, into the length of what the model generated."""
RELEASES: tuple[tuple[str, tuple[int, ...]], ...] = (
    ("actor/perf/", (0, 8)),
    ("response/aborted_ratio", (0, 6)),
    (RL_STEP_KEY, (0, 4)),
    (EARLY_TIMING, (0, 1)),
)
"""Beginnings of keys that only some releases have, each with the first of these releases. The newest stands first."""
OLDEST = (0, 2)


def completes(row: Row) -> bool:
    return any(key in row.values for key in (RL_STEP_KEY, SFT_STEP_KEY, EARLY_STEP_KEY))


def kind(rows: Iterable[Row]) -> type[Step]:
    """Which kind of training it was."""
    config = config_of(rows)
    if config is not None:
        return RLStep if is_rl(config) else SFTStep
    return SFTStep if any(SFT_STEP_KEY in row.values or "val/loss" in row.values for row in rows) else RLStep


def release(keys: Collection[str]) -> tuple[int, ...]:
    """The first release of verl that all logs with these keys may be of."""
    return next((found for begin, found in RELEASES if any(key.startswith(begin) for key in keys)), OLDEST)


def steps(rows: Iterable[Row], step_type: type[Step]) -> Iterator[tuple[Row, Step]]:
    """Each row that has figures, with them. A step has its number; anything else is an amendment."""
    rows = [*rows]
    config = config_of(rows)
    translation = _translation(rows, config, step_type)
    for row in rows:
        values = _usable(row) if step_type is RLStep else row.values
        step = translation.step_of(LogCall(translation, values, row.number))
        if step is not None:
            yield row, step


def _translation(rows: list[Row], config: Mapping[str, Any] | None, step_type: type[Step]) -> Translation:
    if step_type is SFTStep:
        return SFTTranslation(config)
    return RLTranslation(config, release({key for row in rows for key in row.values}))


def _usable(row: Row) -> dict[str, Any]:
    """The row of a reinforcement trainer with the number of its step, and without what its other values belie."""
    values = row.values if RL_STEP_KEY in row.values or not completes(row) else {**row.values, RL_STEP_KEY: row.number}
    has_divergence = bool(row.values.get(EARLY_KL_WEIGHT))  # without a reference model it logged a 0
    has_lengths = (number(row.values.get(TURNS)) or 0) <= ONE_ANSWER
    return {
        key: value
        for key, value in values.items()
        if (has_divergence or key != EARLY_KL) and (has_lengths or not key.startswith(LENGTHS))
    }
