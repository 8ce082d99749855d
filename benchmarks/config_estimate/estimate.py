"""FLOPs of a training pass from a model's configuration alone: its matrix products and its attention. The package's
count on the live model is held against it."""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterable
from typing import Any

from benchmarks.config_estimate.architecture import Architecture, Settings, Undescribed
from benchmarks.config_estimate.families import FAMILIES


def estimate_from_config(config: Any, sequence_lengths: Iterable[int]) -> int | None:
    """FLOPs of one full forward and backward pass: 6 per parameter and token, and 3 times the forward attention.

    Args:
        config: a `transformers` configuration or what its `to_dict()` gives; of a multimodal one the text section.
        sequence_lengths: tokens of each sequence, padding left out. Attention is causal within a sequence.

    Returns:
        The FLOPs, or None, with one log line, for an architecture that is not described here.
    """
    lengths = list(sequence_lengths)
    if (found := architecture(config)) is None:
        return None
    return 6 * found.parameters.total * sum(lengths) + 3 * found.attention_flops(lengths)


def architecture(config: Any) -> Architecture | None:
    """What the configuration says of the language model. None, with one log line, where that is not known."""
    settings = Settings(config).of_text()
    model_type = str(settings.get("model_type"))
    try:
        return _read(model_type, settings)
    except Undescribed as reason:
        _report(model_type, str(reason))
        return None


def _read(model_type: str, settings: Settings) -> Architecture:
    if model_type not in FAMILIES:
        raise Undescribed("the architecture has no description")
    try:
        return FAMILIES[model_type].read(settings)
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:  # a configuration of another make
        raise Undescribed(f"its configuration makes no sense here ({type(error).__name__}: {error})") from error


@functools.cache  # one line for each architecture and reason
def _report(model_type: str, reason: str) -> None:
    logging.getLogger(__name__).warning("no FLOPs estimate for a model of type %r: %s", model_type, reason)
