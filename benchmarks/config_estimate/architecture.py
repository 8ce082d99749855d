"""What a configuration says of a language model: the parameters and the attention that cost FLOPs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from akka_otel_callbacks.common.flops.module import MatmulParameters


class Undescribed(Exception):
    """A configuration from which no estimate follows. The text completes "no FLOPs estimate: …"."""


@dataclass(frozen=True, slots=True)
class Attention:
    """One layer's causal attention: its heads, the sizes of each, how many tokens back it sees (None: all)."""

    heads: int
    key_size: int
    value_size: int
    window: int | None

    def pairs(self, length: int) -> int:
        """Pairs of a token and one that it sees, itself included, in a sequence of `length` tokens."""
        seen = length if self.window is None else min(self.window, length)
        return seen * (seen + 1) // 2 + (length - seen) * seen

    def forward_flops(self, length: int) -> int:
        """Per pair and head the products query · key and weight · value, at 2 FLOPs for a multiply and add."""
        return 2 * self.pairs(length) * self.heads * (self.key_size + self.value_size)


@dataclass(frozen=True, slots=True)
class Architecture:
    """A decoder: matmul parameters that one token meets, and the attention of each layer."""

    parameters: MatmulParameters
    attention: tuple[Attention, ...]

    def attention_flops(self, sequence_lengths: Iterable[int]) -> int:
        """FLOPs of attention in a forward pass over sequences of these lengths, in tokens."""
        return sum(layer.forward_flops(length) for length in sequence_lengths for layer in self.attention)


class Settings:
    """A configuration, mapping or object, each of whose settings may go by several names."""

    def __init__(self, config: Any) -> None:
        self._config = config

    def get(self, *names: str) -> Any:
        """The first of these settings that is set, else None."""
        for name in names:
            mapping = isinstance(self._config, Mapping)
            value = self._config.get(name) if mapping else getattr(self._config, name, None)
            if value is not None:
                return value
        return None

    def __call__(self, *names: str) -> Any:
        """Like `get`, but raises `Undescribed` for what is not set."""
        if (value := self.get(*names)) is None:
            raise Undescribed(f"its configuration has no {' or '.join(names)}")
        return value

    def of_text(self) -> Settings:
        """The section on the language model of a multimodal configuration, else all of it."""
        section = self.get("text_config")
        return self if section is None else Settings(section)
