"""Dense bf16 peaks of accelerators by device name, each with its source."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass

from akka_otel_callbacks.common.log import logger


@dataclass(frozen=True, slots=True)
class Peak:
    """What one device can do at most.

    Attributes:
        tflops: TFLOP/s of dense matrix products in `precision`, accumulated in fp32, without structured sparsity.
        source: the vendor's document, and how the figure follows from it where it prints another.
        precision: bf16, or fp16 for a device whose matrix units have no bf16.
    """

    tflops: float
    source: str
    precision: str = "bf16"


def dense_bf16_peak(device_name: str) -> float | None:
    """FLOP/s of one device, by the name that its driver gives.

    The whole name has to be that of a known device, but for the vendor's name and the size of the memory: an RTX A4000
    is not an A40, an H100 PCIe not an H100 SXM, a laptop's GPU or a MIG slice not the full one.

    Args:
        device_name: such as `NVIDIA A100-SXM4-80GB`, from `torch.cuda.get_device_name()` or NVML.

    Returns:
        The peak. None, with one log line for each name, for a device that is not known.
    """
    if (peak := PEAKS.get(_model(device_name))) is not None:
        return peak.tflops * 1e12
    _report(device_name)
    return None


def total_peak(device_names: Iterable[str]) -> float | None:
    """FLOP/s of several devices together. None for none, and where one of them is not known."""
    peaks = [dense_bf16_peak(name) for name in device_names]
    known = [peak for peak in peaks if peak is not None]
    return sum(known) if known and len(known) == len(peaks) else None


_SAYS_NOTHING = re.compile(r"nvidia|amd|instinct|tesla|geforce|\d+gb?|hbm3e?|\(r\)|\(tm\)")


def _model(device_name: str) -> str:
    words = re.split(r"[\s-]+", device_name.strip().lower())
    return " ".join(word for word in words if not _SAYS_NOTHING.fullmatch(word))


@functools.cache  # one line for each name
def _report(device_name: str) -> None:
    logger.warning(
        "no MFU: the peak of the device %r is not known. peak_flops= sets it, in dense bf16 FLOP/s of one device.",
        device_name,
    )


_A100 = Peak(312, "NVIDIA A100 datasheet")
_H100_SXM = Peak(989.4, "NVIDIA H100 architecture whitepaper, SXM5")
_H200_SXM = Peak(989.4, "NVIDIA H200 datasheet: 1,979 with sparsity, the chip of the H100 SXM5")
_RTX_PRO = "NVIDIA RTX Blackwell PRO architecture whitepaper, table 4"
_NVL = "datasheet: 1,671 with sparsity, halved"
_GA10X = "datasheet: {} with sparsity, halved"
_AD10X = "datasheet: {} in FP8 with sparsity, a quarter"

# By model: the device's name in lower case, words separated by one space, without vendor and memory.
PEAKS = {
    # NVIDIA data centre
    "gb300": Peak(2500, "NVIDIA GB300 NVL72 datasheet: 360 PFLOPS with sparsity, 72 GPUs, halved"),
    "gb200": Peak(2500, "NVIDIA GB200 NVL72 datasheet: 360 PFLOPS with sparsity, 72 GPUs, halved"),
    "b300 sxm6 ac": Peak(2250, "NVIDIA HGX B300 datasheet: 36 PFLOPS with sparsity, 8 GPUs, halved"),
    "b200": Peak(2250, "NVIDIA HGX B200 datasheet: 36 PFLOPS with sparsity, 8 GPUs, halved"),
    "gh200": Peak(989.4, "NVIDIA GH200 datasheet: 1,979 with sparsity, the chip of the H100 SXM5"),
    "h200": _H200_SXM,
    "h200 nvl": Peak(835.5, f"NVIDIA H200 NVL {_NVL}"),
    "h100": _H100_SXM,
    "h100 nvl": Peak(835.5, f"NVIDIA H100 NVL {_NVL}"),
    "h100 pcie": Peak(756.5, "NVIDIA H100 PCIe datasheet: 1,513 with sparsity, halved"),
    "h800": _H100_SXM,
    "h20": Peak(148, "NVIDIA H20 datasheet"),
    "h20 3e": Peak(148, "NVIDIA H20 datasheet"),
    "a100 sxm4": _A100,
    "a100 pcie": _A100,
    "a800 sxm4": Peak(312, "NVIDIA A800 datasheet"),
    "a800 pcie": Peak(312, "NVIDIA A800 datasheet"),
    "a40": Peak(149.7, "NVIDIA A40 datasheet"),
    "a30": Peak(165, "NVIDIA A30 datasheet"),
    "a10": Peak(125, "NVIDIA A10 datasheet"),
    "a10g": Peak(70, "NVIDIA A10G datasheet (AWS)"),
    "a2": Peak(18, "NVIDIA A2 datasheet"),
    "l40s": Peak(362.05, "NVIDIA L40S datasheet"),
    "l40": Peak(181.05, "NVIDIA L40 datasheet"),
    "l20": Peak(119.5, "NVIDIA L20 datasheet"),
    "l4": Peak(121, "NVIDIA L4 datasheet: 242 with sparsity, halved"),
    "t4": Peak(65, "NVIDIA T4 datasheet", "fp16"),
    "v100 sxm2": Peak(125, "NVIDIA V100 datasheet, SXM2", "fp16"),
    "v100 pcie": Peak(112, "NVIDIA V100 datasheet, PCIe", "fp16"),
    "v100s pcie": Peak(130, "NVIDIA V100 datasheet, V100S", "fp16"),
    # NVIDIA workstation
    "rtx pro 6000 blackwell workstation edition": Peak(503.8, _RTX_PRO),
    "rtx pro 6000 blackwell server edition": Peak(500, "NVIDIA RTX PRO 6000 datasheet: 1 PFLOPS with sparsity, halved"),
    "rtx pro 6000 blackwell max q workstation edition": Peak(438.9, _RTX_PRO),
    "rtx 6000 ada generation": Peak(364.25, f"NVIDIA RTX 6000 Ada {_AD10X.format('1,457')}"),
    "rtx 5000 ada generation": Peak(261.1, f"NVIDIA RTX 5000 Ada {_AD10X.format('1,044.4')}"),
    "rtx 4500 ada generation": Peak(158.5, f"NVIDIA RTX 4500 Ada {_AD10X.format('634.0')}"),
    "rtx 4000 ada generation": Peak(106.9, f"NVIDIA RTX 4000 Ada {_AD10X.format('427.6')}"),
    "rtx a6000": Peak(154.85, f"NVIDIA RTX A6000 {_GA10X.format('309.7')}"),
    "rtx a5500": Peak(136.4, f"NVIDIA RTX A5500 {_GA10X.format('272.8')}"),
    "rtx a5000": Peak(111.1, f"NVIDIA RTX A5000 {_GA10X.format('222.2')}"),
    "rtx a4500": Peak(94.6, f"NVIDIA RTX A4500 {_GA10X.format('189.2')}"),
    "rtx a4000": Peak(76.7, f"NVIDIA RTX A4000 {_GA10X.format('153.4')}"),
    # NVIDIA GeForce, where accumulating in fp32 runs at half the rate that is advertised
    "rtx 5090": Peak(209.5, "NVIDIA RTX Blackwell architecture whitepaper"),
    "rtx 5080": Peak(112.6, "NVIDIA RTX Blackwell architecture whitepaper"),
    "rtx 4090": Peak(165.2, "NVIDIA Ada architecture whitepaper"),
    "rtx 4080": Peak(97.5, "NVIDIA Ada architecture whitepaper"),
    "rtx 3090 ti": Peak(80, "NVIDIA Ada architecture whitepaper, comparison table"),
    "rtx 3090": Peak(71, "NVIDIA GA102 architecture whitepaper"),
    # AMD
    "mi355x": Peak(2516.6, "AMD Instinct MI355X data sheet"),
    "mi350x": Peak(2306.9, "AMD Instinct MI350X data sheet"),
    "mi325x": Peak(1307.4, "AMD Instinct MI325X data sheet"),
    "mi300x": Peak(1307.4, "AMD Instinct MI300X data sheet"),
    "mi300a": Peak(980.6, "AMD Instinct MI300A data sheet"),
    "mi250x": Peak(191.5, "AMD Instinct MI250X data sheet: 383 for a card of two devices"),
    "mi250": Peak(181.05, "AMD Instinct MI250 data sheet: 362.1 for a card of two devices"),
    "mi210": Peak(181, "AMD Instinct MI210 data sheet"),
    "mi100": Peak(92.3, "AMD Instinct MI100 data sheet"),
}
