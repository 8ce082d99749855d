"""Telemetry for a service that runs training jobs: who holds its GPU pools, and how its runs go."""

from akka_otel_callbacks.common.service.phases import ImpossibleOrder
from akka_otel_callbacks.common.service.progress import RunProgress
from akka_otel_callbacks.common.service.state import Claim, Pool, ServiceState
from akka_otel_callbacks.common.service.telemetry import ServiceTelemetry
from akka_otel_callbacks.common.vocabulary.names import (
    ClaimState,
    RunPhase,
)
from akka_otel_callbacks.common.vocabulary.names import PipelineStageOutcome as StageOutcome
from akka_otel_callbacks.common.vocabulary.names import PipelineStageType as StageType
from akka_otel_callbacks.common.vocabulary.names import ServiceFailureReason as FailureReason
from akka_otel_callbacks.common.vocabulary.names import ServiceOperation as Operation
from akka_otel_callbacks.common.vocabulary.names import ServiceOutcome as OperationOutcome
from akka_otel_callbacks.common.vocabulary.names import ServiceStage as OperationStage

__all__ = [
    "Claim",
    "ClaimState",
    "FailureReason",
    "ImpossibleOrder",
    "Operation",
    "OperationOutcome",
    "OperationStage",
    "Pool",
    "RunPhase",
    "RunProgress",
    "ServiceState",
    "ServiceTelemetry",
    "StageOutcome",
    "StageType",
]
