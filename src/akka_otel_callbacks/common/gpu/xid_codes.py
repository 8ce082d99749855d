"""What NVIDIA's XID catalog says of each code that a compute job can meet, in short."""

from __future__ import annotations

from typing import NamedTuple

from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.names import GpuXidCause


class Xid(NamedTuple):
    meaning: str
    cause: str


CAUSES = names.ATTR_GPU_XID_CAUSE.values
IN_WORDS = {
    GpuXidCause.APPLICATION: "usually a fault of the application",
    GpuXidCause.INFORMATIONAL: "informational",
    GpuXidCause.HARDWARE: "usually the hardware or the driver",
    GpuXidCause.UNKNOWN: "no meaning is known here; see NVIDIA's XID reference",
}
FELL_OFF_THE_BUS = 79
_APPLICATION, _INFORMATIONAL, _HARDWARE = GpuXidCause.APPLICATION, GpuXidCause.INFORMATIONAL, GpuXidCause.HARDWARE

XIDS: dict[int, Xid] = {
    8: Xid("GPU stopped processing", _APPLICATION),
    11: Xid("invalid or corrupted push buffer stream", _APPLICATION),
    13: Xid("graphics engine exception, such as an illegal address or instruction", _APPLICATION),
    25: Xid("invalid or illegal push buffer stream", _APPLICATION),
    31: Xid("GPU memory page fault", _APPLICATION),
    32: Xid("invalid or corrupted push buffer stream", _APPLICATION),
    37: Xid("driver firmware error", _INFORMATIONAL),
    38: Xid("driver firmware error", _INFORMATIONAL),
    **{code: Xid("copy engine exception", _APPLICATION) for code in (39, 40, 41)},
    43: Xid("GPU stopped processing; the program was ended", _APPLICATION),
    44: Xid("graphics engine fault during context switch", _INFORMATIONAL),
    45: Xid("clean-up after an earlier error or the end of a program", _APPLICATION),
    46: Xid("GPU stopped processing", _HARDWARE),
    48: Xid("double-bit ECC error", _HARDWARE),
    54: Xid("auxiliary power is not connected to the GPU board", _HARDWARE),
    61: Xid("internal micro-controller breakpoint or warning", _HARDWARE),
    62: Xid("internal micro-controller halt", _HARDWARE),
    63: Xid("memory row remapped or page retired", _INFORMATIONAL),
    64: Xid("memory row remapping or page retirement failed", _HARDWARE),
    66: Xid("illegal access by the driver", _INFORMATIONAL),
    67: Xid("illegal access by the driver", _INFORMATIONAL),
    68: Xid("video decoder exception", _APPLICATION),
    69: Xid("graphics engine class error", _APPLICATION),
    **{code: Xid("copy engine error", _APPLICATION) for code in (70, 71, 72, 75, 76, 77, 85)},
    74: Xid("NVLink error", _HARDWARE),
    FELL_OFF_THE_BUS: Xid("GPU has fallen off the bus", _HARDWARE),
    80: Xid("corrupted data sent to the GPU", _HARDWARE),
    92: Xid("high rate of single-bit ECC errors", _INFORMATIONAL),
    93: Xid("non-fatal violation of the provisioned InfoROM wear limit", _INFORMATIONAL),
    94: Xid("contained memory error", _HARDWARE),
    95: Xid("uncontained memory error", _HARDWARE),
    109: Xid("context switch timeout", _HARDWARE),
    110: Xid("security fault", _HARDWARE),
    119: Xid("GSP RPC timeout", _HARDWARE),
    120: Xid("GSP error", _HARDWARE),
    121: Xid("C2C link error", _INFORMATIONAL),
    **{code: Xid("copy engine error", _APPLICATION) for code in range(126, 136)},
    136: Xid("link training failed", _HARDWARE),
    137: Xid("NVLink privilege error, such as an illegal address on a peer GPU", _APPLICATION),
    140: Xid("unrecovered ECC error", _HARDWARE),
    141: Xid("CUDA fast path error", _INFORMATIONAL),
    143: Xid("GPU initialization error", _HARDWARE),
    **{code: Xid("NVLink error", _HARDWARE) for code in range(144, 151)},
    154: Xid("GPU recovery action changed; it follows another XID", _INFORMATIONAL),
    155: Xid("NVLink error defined by software", _HARDWARE),
    156: Xid("resource retirement", _HARDWARE),
    157: Xid("resource retirement failed", _INFORMATIONAL),
    158: Xid("GPU fatal timeout", _HARDWARE),
    160: Xid("channel retirement", _INFORMATIONAL),
    161: Xid("channel retirement failed", _INFORMATIONAL),
    167: Xid("fatal PCIe timeout", _HARDWARE),
    169: Xid("internal micro-controller halt", _HARDWARE),
    171: Xid("details of an XID 48: the fault was in DRAM", _HARDWARE),
    172: Xid("details of an XID 48: the fault was in SRAM", _HARDWARE),
}
"""Codes that are not here are reported all the same, without a meaning."""


def cause_of(code: int) -> str:
    """Where to look first for a code's cause. NVIDIA's catalog gives it as a hint and not as a verdict."""
    return XIDS[code].cause if code in XIDS else GpuXidCause.UNKNOWN


def describe(code: int) -> str:
    """The meaning and the usual cause in words, for a log line."""
    cause = IN_WORDS[cause_of(code)]
    return f"{XIDS[code].meaning}; {cause}" if code in XIDS else cause
