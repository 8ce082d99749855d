"""The GPUs of a process, for who wants them watched in another way than a training does by itself.

AkkaTelemetryCallback(gpus=GpuHealth(interval_s=1))  # sample more often
"""

from akka_otel_callbacks.common.gpu.health import GpuHealth

__all__ = ["GpuHealth"]
