"""Model FLOPs utilization of this process's own devices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from akka_otel_callbacks.common.flops import MatmulParameters, matmul_parameters, mfu, train_flops
from akka_otel_callbacks.common.flops.peaks import total_peak
from akka_otel_callbacks.trl.accelerators import device_ids

if TYPE_CHECKING:
    from transformers import Trainer, TrainingArguments


@dataclass(frozen=True, slots=True)
class Positions:
    """Token positions that an update ran over in this process, padding included. All of them pass the layers. Those
    whose logits the loss needs, `scored`, also pass the output head."""

    tokens: int = 0
    scored: int = 0


@dataclass(frozen=True, slots=True)
class Efficiency:
    """A model's size against its devices' peak.

    Of several processes, each trains its share of the batch on its own devices. So the first one's utilization is that
    of the job, as far as the ranks are alike.
    """

    parameters: MatmulParameters
    peak_flops: float
    """FLOP/s of this process's devices together."""

    def mfu(self, positions: Positions, seconds: float | None) -> float | None:
        """The utilization of an update of `seconds`. None if nothing was trained, or if the figure is impossible."""
        if not seconds:
            return None
        return mfu(train_flops(self.parameters, positions.tokens, positions.scored), seconds, self.peak_flops)


def efficiency(trainer: Trainer | None, args: TrainingArguments, peak_flops: float | None) -> Efficiency | None:
    """The efficiency of a trainer. None, with one log line, if the devices' peak or the model's size is not known.

    Args:
        peak_flops: FLOP/s of one device. None to look it up by the device's name.
    """
    peak = _peak(trainer, args) if peak_flops is None else peak_flops * max(1, len(device_ids(trainer, args)))
    parameters = matmul_parameters(trainer.model) if trainer is not None and peak else None
    return Efficiency(parameters, peak) if parameters is not None and peak else None


def _peak(trainer: Trainer | None, args: TrainingArguments) -> float | None:
    """FLOP/s of this process's devices. None without CUDA: the peak of a CPU says nothing."""
    ordinals = device_ids(trainer, args)
    if not ordinals:
        return None
    import torch

    return total_peak(torch.cuda.get_device_name(ordinal) for ordinal in ordinals)
