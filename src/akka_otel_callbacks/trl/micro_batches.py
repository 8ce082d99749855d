"""Counts what the micro-batches of an update hold: positions, tokens, labels. Sums stay on their device until they are
read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from akka_otel_callbacks.common.numbers import number

IGNORED = -100  # the label of a position that the loss leaves out


@dataclass(frozen=True, slots=True)
class Mask:
    """An attention mask, as far as it says which positions hold a token."""

    positions: int = 0
    kept: Any = None
    """How many of them are not zero."""
    sum: Any = None
    integers: bool = True
    readable: bool = True
    """False for a mask of pairs of positions (3-D, 4-D), or of another kind."""

    def tokens(self) -> float | None:
        """The number of positions that hold a token. None if the mask does not say. An integer mask may number the
        sequences of a pack instead of having ones. A mask of floats counts only if it has nothing but zeros and ones:
        other floats are added to the scores."""
        kept, total = number(self.kept), number(self.sum)
        if not self.readable or kept is None or (not self.integers and (kept != total or not kept)):
            return None
        return kept

    def is_of_ones(self) -> bool:
        """Whether the sum of the mask, which TRL takes for the tokens, is their number."""
        return self.tokens() is not None and self.tokens() == number(self.sum)


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """One of the batches whose gradients add up to an update."""

    positions: int
    mask: Mask | None
    labels: Any
    """How many positions have a label that the loss counts, shifted by one. None if that is not known."""


def micro_batch(batch: Any) -> MicroBatch:
    """Counts one batch of the trainer. On a device this only queues the sums."""
    values: Mapping[str, Any] = batch if isinstance(batch, Mapping) else {}
    ids: Any = values.get("input_ids")
    positions = ids.numel() if hasattr(ids, "numel") else 0
    return MicroBatch(positions, _mask(values.get("attention_mask")), _labels(values, ids))


def _mask(mask: Any) -> Mask | None:
    if mask is None:
        return None
    if getattr(mask, "ndim", None) != 2 or not hasattr(mask, "dtype") or not hasattr(mask, "numel"):
        return Mask(readable=False)
    integers = not (mask.dtype.is_floating_point or mask.dtype.is_complex)
    return Mask(mask.numel(), mask.count_nonzero(), mask.sum(), integers)


def _labels(values: Mapping[str, Any], ids: Any) -> Any:
    shifted: Any = values.get("shift_labels")
    labels: Any = values.get("labels")
    if getattr(labels, "shape", ()) != getattr(ids, "shape", None) or getattr(labels, "ndim", 0) != 2:
        return None
    return ((labels[:, 1:] if shifted is None else shifted) != IGNORED).count_nonzero()


def padding(batches: Sequence[MicroBatch]) -> float | None:
    """The share of positions that hold no token. None without masks, or if a mask does not say."""
    masks = [batch.mask for batch in batches if batch.mask is not None]
    positions, tokens = sum(mask.positions for mask in masks), _tokens(masks)
    return 1.0 - tokens / positions if positions and tokens is not None else None


def unpadded(batches: Sequence[MicroBatch]) -> float | None:
    """The number of tokens in all batches, by their masks. None if one of them does not say."""
    masks = [batch.mask for batch in batches if batch.mask is not None]
    return _tokens(masks) if masks and len(masks) == len(batches) else None


def _tokens(masks: Sequence[Mask]) -> float | None:
    found = [mask.tokens() for mask in masks]
    return sum(count for count in found if count is not None) if None not in found else None


def are_counted(batches: Sequence[MicroBatch]) -> bool:
    """Whether TRL's own count, the sum of the masks, is the number of tokens."""
    return all(batch.mask is None or batch.mask.is_of_ones() for batch in batches)


def counted(counts: Sequence[Any]) -> list[float] | None:
    """The counts of a step's micro-batches as numbers. None if one of them is not known."""
    found = [number(count) for count in counts]
    return [count for count in found if count is not None] if None not in found else None
