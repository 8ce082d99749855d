"""The GPUs whose figures a training started here would publish, or the reason why there are none."""

from __future__ import annotations

import logging
import os
import threading
from collections import Counter

from akka_otel_callbacks.common.export.targets.target import Answer
from akka_otel_callbacks.common.gpu.devices import Devices
from akka_otel_callbacks.common.gpu.nvml import START, Code, Nvml, Unavailable, explained
from akka_otel_callbacks.common.log import logger
from akka_otel_callbacks.common.switches import GPUS, is_off

PATIENCE_S = 10.0
NO_GPU = (Code.LIBRARY_NOT_FOUND, Code.DRIVER_NOT_LOADED)


def gpus() -> Answer:
    """Asks NVML on a thread of its own, because a driver may hang, and waits for at most `PATIENCE_S` seconds. A
    machine without a GPU is healthy. A machine whose GPUs cannot be read is not."""
    if is_off(GPUS, os.environ):
        return Answer(None, f"{GPUS} is set: all GPU figures are absent")
    found: list[Answer] = []
    thread = threading.Thread(target=lambda: found.append(_ask()), daemon=True)
    thread.start()
    thread.join(PATIENCE_S)
    return (
        found[0] if found else Answer(False, f"all GPU figures are absent: NVML gave no answer in {PATIENCE_S:.0f} s")
    )


def _ask() -> Answer:
    level = logger.level
    logger.setLevel(logging.CRITICAL)  # what it would warn of is the answer
    try:
        nvml = Nvml()
        started = nvml.open()
        if isinstance(started, Unavailable):
            return Answer(None if started.code in NO_GPU else False, explained(started, START))
        devices = Devices(nvml, environ=os.environ)
        devices.refresh()
        named = Counter(device.name or device.uuid for device in devices.reachable())
    except Exception as error:  # noqa: BLE001 - whatever it is, the other findings are worth printing
        return Answer(False, f"all GPU figures are absent: {type(error).__name__}: {error}")
    finally:
        logger.setLevel(level)
    if not named:
        return Answer(None, "all GPU figures are absent: this process sees no GPU")
    return Answer(True, ", ".join(f"{count} × {name}" for name, count in named.items()))
