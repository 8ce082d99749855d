"""Writes the file that the fake libnvidia-ml.so.1 reads. The structs mirror nvml.c."""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("nvml.c")
LIBRARY = "libnvidia-ml.so.1"
MAX_GPUS, MAX_FIELDS, MAX_RULES, MAX_EVENTS, MAX_CALLS = 16, 16, 32, 64, 64
ANY_GPU, NO_PARENT, WHOLE_GPU = -1, -1, 0xFFFFFFFF
XID_EVENT = 0x8


class Field(ctypes.Structure):
    _fields_ = [("id", ctypes.c_uint32), ("type", ctypes.c_uint32), ("value", ctypes.c_uint64)]


class Gpu(ctypes.Structure):
    """A GPU or a MIG slice. Its attributes are what NVML answers, in NVML's units."""

    field_count: int

    _fields_ = [
        ("uuid", ctypes.c_char * 96),
        ("name", ctypes.c_char * 96),
        ("bus_id", ctypes.c_char * 32),
        ("parent", ctypes.c_int32),
        ("instance", ctypes.c_uint32),
        ("power_mw", ctypes.c_uint32),
        ("celsius", ctypes.c_uint32),
        ("gpu_percent", ctypes.c_uint32),
        ("memory_percent", ctypes.c_uint32),
        ("sm_mhz", ctypes.c_uint32),
        ("memory_mhz", ctypes.c_uint32),
        ("memory_used", ctypes.c_uint64),
        ("memory_total", ctypes.c_uint64),
        ("memory_reserved", ctypes.c_uint64),
        ("throttle_bits", ctypes.c_uint64),
        ("event_types", ctypes.c_uint64),
        ("field_count", ctypes.c_uint32),
        ("fields", Field * MAX_FIELDS),
    ]

    def field(self, field_id: int, value: float | None) -> None:
        """What NVML answers for a field value; None for “not supported”."""
        others = [(f.id, f.type, f.value) for f in self.fields[: self.field_count] if f.id != field_id]
        if value is not None:
            kind, bits = (0, struct.unpack("Q", struct.pack("d", value))[0]) if isinstance(value, float) else (3, value)
            others.append((field_id, kind, bits))
        for index, (other_id, kind, bits) in enumerate(others):
            self.fields[index] = Field(other_id, kind, bits)
        self.field_count = len(others)


class Rule(ctypes.Structure):
    _fields_ = [
        ("function", ctypes.c_char * 64),
        ("gpu", ctypes.c_int32),
        ("code", ctypes.c_int32),
        ("hang", ctypes.c_int32),
    ]


class Event(ctypes.Structure):
    _fields_ = [
        ("gpu", ctypes.c_int32),
        ("instance", ctypes.c_uint32),
        ("type", ctypes.c_uint64),
        ("data", ctypes.c_uint64),
    ]


class Calls(ctypes.Structure):
    _fields_ = [("function", ctypes.c_char * 64), ("gpu", ctypes.c_int32), ("count", ctypes.c_uint64)]


class State(ctypes.Structure):
    _fields_ = [
        ("initialized", ctypes.c_uint32),
        ("gpu_count", ctypes.c_uint32),
        ("rule_count", ctypes.c_uint32),
        ("event_head", ctypes.c_uint32),
        ("event_tail", ctypes.c_uint32),
        ("call_count", ctypes.c_uint32),
        ("waits", ctypes.c_uint32),
        ("sets", ctypes.c_uint32),
        ("hangs", ctypes.c_uint32),
        ("gpus", Gpu * MAX_GPUS),
        ("rules", Rule * MAX_RULES),
        ("events", Event * MAX_EVENTS),
        ("calls", Calls * MAX_CALLS),
    ]


def build(directory: Path) -> Path:
    """Compiles the library into `directory` and gives its path."""
    library = directory / LIBRARY
    flags = ["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", f"-Wl,-soname,{LIBRARY}"]
    subprocess.run([os.environ.get("CC", "cc"), *flags, "-o", str(library), str(SOURCE)], check=True)
    return library


def load(library: Path, state: Path) -> None:
    """Makes this process's nvidia-ml-py find the fake: a library that is loaded already is taken by its soname."""
    os.environ["FAKE_NVML_STATE"] = str(state)
    ctypes.CDLL(str(library))


class FakeDriver:
    """The driver as a test scripts it, effective at once in every process that maps the same file."""

    def __init__(self, library: Path, state: Path) -> None:
        self.library, self.path = library, state
        state.write_bytes(bytes(ctypes.sizeof(State)))
        with state.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), 0)
        self.state = State.from_buffer(self._memory)

    @property
    def environment(self) -> dict[str, str]:
        """What a child process needs to find the fake."""
        return {"LD_LIBRARY_PATH": str(self.library.parent), "FAKE_NVML_STATE": str(self.path)}

    def reset(self) -> None:
        """A machine without GPUs, freshly booted. Calls that hang return."""
        ctypes.memset(ctypes.byref(self.state), 0, ctypes.sizeof(State))

    def gpu(self, uuid: str, name: str = "NVIDIA H100 80GB HBM3", **answers: int | str) -> Gpu:
        """Adds a healthy GPU; `answers` replace what it says of itself."""
        index = self.state.gpu_count
        gpu = self.state.gpus[index]
        defaults = {
            "bus_id": f"00000000:{index + 1:02X}:00.0",
            "parent": NO_PARENT,
            "power_mw": 250_000,
            "celsius": 50,
            "gpu_percent": 80,
            "memory_percent": 40,
            "sm_mhz": 1980,
            "memory_mhz": 2619,
            "memory_used": 20 << 30,
            "memory_total": 80 << 30,
            "memory_reserved": 512 << 20,
            "event_types": XID_EVENT,
        }
        for attribute, value in {"uuid": uuid, "name": name, **defaults, **answers}.items():
            setattr(gpu, attribute, value.encode() if isinstance(value, str) else value)
        self.state.gpu_count += 1
        return gpu

    def slice_of(self, gpu: Gpu, uuid: str, instance: int, **answers: int | str) -> Gpu:
        """Divides a GPU: adds a MIG slice of it."""
        return self.gpu(uuid, "NVIDIA H100 80GB HBM3 MIG 1g.10gb", parent=self.index(gpu), instance=instance, **answers)

    def index(self, gpu: Gpu) -> int:
        return (ctypes.addressof(gpu) - ctypes.addressof(self.state.gpus)) // ctypes.sizeof(Gpu)

    def fail(self, function: str, code: int, gpu: Gpu | None = None) -> None:
        """`function` answers `code` from now on; `*` is every function but the start of NVML."""
        self._rule(function, code, 0, gpu)

    def hang(self, function: str, gpu: Gpu | None = None) -> None:
        """`function` does not return until `heal`. `state.hangs` counts its calls from when they hang."""
        self._rule(function, 0, 1, gpu)

    def lose(self, gpu: Gpu) -> None:
        """The GPU falls off the bus: whatever is asked of it, or of all events, is answered so."""
        self.fail("*", 15, gpu)
        self.fail("nvmlEventSetWait_v2", 15)

    def heal(self) -> None:
        """Everything answers again."""
        self.state.rule_count = 0

    def _rule(self, function: str, code: int, hang: int, gpu: Gpu | None) -> None:
        index = ANY_GPU if gpu is None else self.index(gpu)
        self.state.rules[self.state.rule_count] = Rule(function.encode(), index, code, hang)
        self.state.rule_count += 1

    def xid(self, gpu: Gpu, code: int, instance: int = WHOLE_GPU, type_: int = XID_EVENT) -> None:
        """The GPU reports an event."""
        self.state.events[self.state.event_head % MAX_EVENTS] = Event(self.index(gpu), instance, type_, code)
        self.state.event_head += 1

    def calls(self, function: str, gpu: Gpu | None = None) -> int:
        """How often a function was called, for one GPU or for none in particular."""
        index = ANY_GPU if gpu is None else self.index(gpu)
        calls = self.state.calls[: self.state.call_count]
        return sum(c.count for c in calls if c.function == function.encode() and c.gpu == index)

    def called(self, gpu: Gpu) -> set[str]:
        """The functions that were called for a GPU."""
        return {c.function.decode() for c in self.state.calls[: self.state.call_count] if c.gpu == self.index(gpu)}
