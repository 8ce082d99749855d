"""FLOPs of a training pass, counted on the live model, and the utilization that they give."""

from akka_otel_callbacks.common.flops.module import MatmulParameters, matmul_parameters
from akka_otel_callbacks.common.flops.utilization import mfu, train_flops

__all__ = ["MatmulParameters", "matmul_parameters", "mfu", "train_flops"]
