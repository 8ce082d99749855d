"""The one module that asks NVML. A failed query returns a value that says why, and never raises."""

from __future__ import annotations

import importlib
import logging
import threading
from collections.abc import Container
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from akka_otel_callbacks.common import switches
from akka_otel_callbacks.common.log import logger


class Code(IntEnum):
    """NVML's return codes that are told apart here. The numbers are part of NVML's ABI; negative ones are our own."""

    SWITCHED_OFF = -2
    PACKAGE_MISSING = -1
    UNINITIALIZED = 1
    INVALID_ARGUMENT = 2
    NOT_SUPPORTED = 3
    NO_PERMISSION = 4
    NOT_FOUND = 6
    DRIVER_NOT_LOADED = 9
    TIMEOUT = 10
    LIBRARY_NOT_FOUND = 12
    FUNCTION_NOT_FOUND = 13
    GPU_IS_LOST = 15
    UNKNOWN = 999


@dataclass(frozen=True, slots=True)
class Unavailable:
    """What stands in the place of a figure that NVML does not give. False, as a condition.

    Attributes:
        code: NVML's return code, or one of our own; any integer, since drivers add codes.
        text: NVML's words for it.
    """

    code: int
    text: str = ""

    def __bool__(self) -> bool:
        return False


EXPECTED: frozenset[int] = frozenset({Code.TIMEOUT, Code.NOT_FOUND, Code.INVALID_ARGUMENT})
"""Answers that are part of asking: no event came, no device has that UUID. They are not logged."""

ADVICE: dict[int, tuple[int, str]] = {
    Code.SWITCHED_OFF: (logging.INFO, "GPU figures are off, as asked: NVML is not used"),
    Code.PACKAGE_MISSING: (logging.WARNING, "GPU figures are off: install the package nvidia-ml-py to have them"),
    Code.LIBRARY_NOT_FOUND: (logging.WARNING, "GPU figures are off: NVIDIA's driver (libnvidia-ml.so.1) is not found"),
    Code.DRIVER_NOT_LOADED: (logging.WARNING, "GPU figures are absent while NVIDIA's driver is not loaded"),
    Code.NO_PERMISSION: (logging.WARNING, "this process may not read some GPU figures; they are absent"),
    Code.GPU_IS_LOST: (logging.WARNING, "a GPU has fallen off the bus; its figures are absent"),
    Code.NOT_SUPPORTED: (logging.INFO, "this GPU does not support some figures; they are absent"),
    Code.FUNCTION_NOT_FOUND: (logging.INFO, "driver or nvidia-ml-py is too old for some GPU figures; they are absent"),
    Code.UNINITIALIZED: (logging.WARNING, "NVML was shut down by another part of the program; it is started again"),
}
START = "nvmlInit"
WITHOUT_START: frozenset[int] = frozenset({Code.PACKAGE_MISSING, Code.LIBRARY_NOT_FOUND, Code.DRIVER_NOT_LOADED})
"""Causes whose advice speaks of all figures already; any other that keeps NVML from starting takes all of them too."""

_said: set[tuple[int, bool]] = set()
_saying = threading.Lock()


def say_once(answer: Unavailable, function: str) -> None:
    """Logs a cause the first time that it is met in the life of the process."""
    cause = answer.code, function == START
    with _saying:
        if cause in _said:
            return
        _said.add(cause)
    logger.log(_advice(answer, function)[0], "%s", explained(answer, function))


def explained(answer: Unavailable, function: str) -> str:
    """What the answer means for the figures, and in NVML's words why."""
    return f"{_advice(answer, function)[1]} ({function}: {answer.text or f'code {answer.code}'})"


def _advice(answer: Unavailable, function: str) -> tuple[int, str]:
    if function == START and answer.code not in WITHOUT_START:
        return logging.WARNING, "all GPU figures are absent: NVML does not start"
    return ADVICE.get(answer.code, (logging.WARNING, "some GPU figures are absent"))


class Nvml:
    """NVML behind one question, `ask`. Any thread may ask; a question may hang when a driver does, so the training
    thread and the exporter's never ask.

    NVML is never shut down here: the library goes with the process, and a shutdown could hang its exit or cut off
    another thread's question.

    Args:
        backend: an object with pynvml's functions, for tests. None for pynvml itself.
        off: never starts NVML.
    """

    def __init__(self, backend: Any = None, *, off: bool = False) -> None:
        self._backend = backend
        self._off = off
        self._ready = False
        self._opening = threading.Lock()
        self.generation = 0
        """How often NVML was started. Handles of an earlier start are not valid in a later one."""

    def open(self) -> bool | Unavailable:
        """Starts NVML where it is not; True once it runs. Call it again after a failure: the driver may be back."""
        if self._off:
            answer = Unavailable(Code.SWITCHED_OFF, f"{switches.GPUS} or gpus=False")
            say_once(answer, "nvmlInit")
            return answer
        with self._opening:
            if self._ready:
                return True
            if self._backend is None:
                try:
                    self._backend = importlib.import_module("pynvml")
                except ImportError as error:
                    missing = Unavailable(Code.PACKAGE_MISSING, str(error))
                    say_once(missing, "import pynvml")
                    return missing
            answer = self.ask(START)
            if isinstance(answer, Unavailable):
                return answer
            self._ready = True
            self.generation += 1
            return True

    def ask(self, *functions: str, to: tuple[Any, ...] = (), expected: Container[int] = EXPECTED) -> Any:
        """The answer of the first of `functions` that driver and package have, called with `to`; else `Unavailable`,
        which is logged once unless its code is `expected`.

        Several functions are several generations of one: NVML renames what it deprecates.
        """
        for function in functions:
            answer = self._call(function, to)
            if not (isinstance(answer, Unavailable) and answer.code == Code.FUNCTION_NOT_FOUND):
                break
        if isinstance(answer, Unavailable):
            if answer.code in (Code.UNINITIALIZED, Code.DRIVER_NOT_LOADED):
                self._ready = False
            if answer.code not in expected:
                say_once(answer, function)
        return answer

    def _call(self, function: str, arguments: tuple[Any, ...]) -> Any:
        try:
            return getattr(self._backend, function)(*arguments)
        except AttributeError as error:  # an nvidia-ml-py older than the function
            return Unavailable(Code.FUNCTION_NOT_FOUND, str(error))
        except Exception as error:  # noqa: BLE001 - NVMLError is the backend's own class; anything else is unknown too
            code = getattr(error, "value", None)
            return Unavailable(code if isinstance(code, int) else Code.UNKNOWN, str(error) or type(error).__name__)


def text(value: str | bytes) -> str:
    """A string of NVML's: nvidia-ml-py gives bytes or str, depending on its version and the function."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
