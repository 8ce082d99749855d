"""How a supervised run's training rows fit the maximum length, counted on the Arrow table that TRL prepared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from akka_otel_callbacks.common.recording.recorder import Recorder
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.step import SFTStep

if TYPE_CHECKING:
    import numpy
    from transformers import Trainer, TrainingArguments

    Array = numpy.ndarray[Any, Any]

Fit = names.SftDataFit
SAMPLE = 1000
"""How many uncut rows are searched for their ending in another place than at the end."""


@dataclass(slots=True)
class RowCapture:
    """Counts on the translator's thread, because a large dataset has to be read from disk."""

    dataset: Any
    max_length: int | None
    truncation: str
    """How rows were cut: `collator`, or the side that was kept, `keep_start` or `keep_end`; `none` if nothing cuts
    them."""
    prepared: bool
    """Whether TRL prepared the table beneath the dataset. If it did, it has dropped the rows of the table that the
    dataset does not list."""

    def deliver(self, recorder: Recorder) -> None:
        counts = count_rows(self.dataset, self.max_length, self.truncation, prepared=self.prepared)
        recorder.record(SFTStep(data_rows=counts))


def row_capture(trainer: Trainer, args: TrainingArguments) -> RowCapture | None:
    """The capture of a trainer's training rows. None for a dataset that is streamed."""
    dataset = getattr(trainer, "train_dataset", None)
    if not hasattr(getattr(dataset, "data", None), "column_names"):
        return None
    truncation = _truncation(trainer, args)
    prepared = truncation in ("keep_start", "keep_end") and _by_trl(getattr(trainer, "_prepare_dataset", None))
    return RowCapture(dataset, getattr(args, "max_length", None), truncation, prepared)


def _truncation(trainer: Trainer, args: TrainingArguments) -> str:
    skipped = (getattr(args, "dataset_kwargs", None) or {}).get("skip_prepare_dataset", False)
    if getattr(args, "packing", False) or skipped or not hasattr(args, "max_length"):
        return "none"
    collator = trainer.data_collator
    if getattr(collator, "max_length", None) is not None:  # TRL 1.0 to 1.7
        return "collator"
    if _collators_cut():  # this one does not: the user's own, or without padding
        return "none"
    return str(getattr(args, "truncation_mode", "keep_start"))


def _collators_cut() -> bool:
    """Whether this TRL leaves the cutting to its collator."""
    from trl.trainer import sft_trainer

    collator = getattr(sft_trainer, "DataCollatorForLanguageModeling", None)
    return "max_length" in getattr(collator, "__dataclass_fields__", {})


def _by_trl(preparation: Any) -> bool:
    return str(getattr(preparation, "__module__", "")).partition(".")[0] == "trl"


def count_rows(dataset: Any, max_length: int | None, truncation: str, *, prepared: bool = True) -> dict[str, int]:
    """How many rows fit in which way. Ways that cannot be told apart are left out.

    TRL cuts rows in place when it prepares a dataset, so the length before the cut is not known. But the rows below the
    maximum show how an uncut row ends: TRL appends an EOS, or a chat template closes the turn. A row at the maximum
    that ends in another way was cut. `truncated` and `full` are left out if there are no uncut rows, if these do not
    all end alike, or if their ending also stands inside rows, where a cut may fall right behind it.

    A dataset that was shuffled, filtered or selected from is a list of indices into a table. The rows are those of the
    list, unless TRL `prepared` the table.

    Args:
        dataset: the prepared `datasets.Dataset`.
        max_length: tokens that a row may have. None for no limit.
        truncation: who cut, see `RowCapture`.
        prepared: see `RowCapture`.
    """
    listed = {Fit.TOTAL: len(dataset)}
    if max_length is None or truncation == "none" or "input_ids" not in dataset.data.column_names:
        return listed
    rows = Rows.of(dataset.data.column("input_ids"), None if prepared else dataset._indices)
    if rows is None:
        return listed
    at = int((rows.lengths == max_length).sum())
    over = int((rows.lengths > max_length).sum())
    if truncation == "collator":
        return listed | {Fit.DROPPED: 0, Fit.TRUNCATED: over, Fit.FULL: at}
    if over:  # nothing was cut after all
        return listed
    counts = {Fit.TOTAL: len(rows.lengths), Fit.DROPPED: len(rows.lengths) - len(dataset)} if prepared else listed
    cut = _cut(rows, max_length) if at and truncation == "keep_start" else (None if at else 0)
    return counts if cut is None else counts | {Fit.TRUNCATED: cut, Fit.FULL: at - cut}


@dataclass(slots=True)
class Rows:
    """The token IDs of a column's rows, without a copy of them."""

    chunks: list[Array]
    """Token IDs of all rows, one array for each of the table's chunks."""
    chunk: Array
    """For each row, the chunk that it is in."""
    ends: Array
    """For each row, where it ends in its chunk."""
    lengths: Array

    @classmethod
    def of(cls, column: Any, indices: Any) -> Rows | None:
        """The rows of a list column, in the order of the dataset's indices if it has any. None for another kind of
        column."""
        import numpy

        if any(not hasattr(chunk, "offsets") for chunk in column.chunks):
            return None
        offsets = [chunk.offsets.to_numpy(zero_copy_only=False).astype(numpy.int64) for chunk in column.chunks]
        order = slice(None) if indices is None else indices.column(0).to_numpy()
        of_chunk = numpy.repeat(numpy.arange(len(offsets)), [len(ends) - 1 for ends in offsets])
        return cls(
            [chunk.values.to_numpy(zero_copy_only=False) for chunk in column.chunks],
            of_chunk[order],
            numpy.concatenate([ends[1:] for ends in offsets] or [numpy.empty(0, int)])[order],
            numpy.concatenate([numpy.diff(ends) for ends in offsets] or [numpy.empty(0, int)])[order],
        )

    def endings(self, of: Array) -> Array:
        """The last token of the rows that are chosen."""
        import numpy

        chunk, ends = self.chunk[of], self.ends[of]
        last = numpy.empty(len(ends), numpy.int64)
        for number, tokens in enumerate(self.chunks):
            last[chunk == number] = tokens[ends[chunk == number] - 1]
        return last


def _cut(rows: Rows, max_length: int) -> int | None:
    """Rows at the maximum that were cut there. None where that cannot be told."""
    endings = set(rows.endings((rows.lengths > 0) & (rows.lengths < max_length)).tolist())
    if len(endings) != 1:
        return None
    (ending,) = endings
    of_full = rows.endings(rows.lengths == max_length)
    whole = int((of_full == ending).sum())
    if whole and _stands_inside(rows, max_length, ending):
        return None
    return len(of_full) - whole


def _stands_inside(rows: Rows, max_length: int, ending: int) -> bool:
    for row in (rows.lengths < max_length).nonzero()[0][:SAMPLE]:
        end, tokens = rows.ends[row], rows.chunks[rows.chunk[row]]
        if (tokens[end - rows.lengths[row] : end - 1] == ending).any():
            return True
    return False
