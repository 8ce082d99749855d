"""FLOPs of a training pass, counted on the live model or read from its configuration, and the utilization they give."""

from akka_otel_callbacks.common.flops.config import estimate_from_config
from akka_otel_callbacks.common.flops.module import MatmulParameters, matmul_parameters
from akka_otel_callbacks.common.flops.utilization import mfu, train_flops

__all__ = ["MatmulParameters", "estimate_from_config", "matmul_parameters", "mfu", "train_flops"]
