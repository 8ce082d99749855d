"""The GPUs of a process, for programs that want to watch them in another way than the default.

AkkaTelemetryCallback(gpus=GpuHealth(interval_s=1))  # sample more often
"""

from akka_otel_callbacks.common.gpu.health import GpuHealth

__all__ = ["GpuHealth"]
