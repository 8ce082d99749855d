"""Measures what happens to checkpoints beyond the engines' own saves: staging, publication, restoring.

    with checkpoints.publish(snapshot_id=snapshot.id, storage_mode=StorageMode.OBJECT_STORE):
        with checkpoints.catalog_reserve():
            catalog.reserve(snapshot)
        with checkpoints.upload(artifact_kind=ArtifactKind.FULL_STATE) as upload:
            for file in snapshot.files:
                upload.moved(store.put(file))
        with checkpoints.catalog_acknowledge():
            catalog.acknowledge(snapshot)

Each block is one attempt: its duration, its outcome and, of a transfer, the bytes it moved are published with the run's
own figures, and a span with its exact identities. An exception makes it a failure and is raised on unchanged. Without a
telemetry in the process the blocks do nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypedDict

from akka_otel_callbacks.common.checkpoints.description import Description
from akka_otel_callbacks.common.checkpoints.operation import Operation, Transfer
from akka_otel_callbacks.common.checkpoints.pending import Pending
from akka_otel_callbacks.common.checkpoints.reporting import Reporting, environment
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.names import CheckpointArtifactKind as ArtifactKind
from akka_otel_callbacks.common.vocabulary.names import CheckpointFailureReason as FailureReason
from akka_otel_callbacks.common.vocabulary.names import CheckpointRestoreMode as RestoreMode
from akka_otel_callbacks.common.vocabulary.names import CheckpointStorageMode as StorageMode

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider
    from typing_extensions import Unpack

    from akka_otel_callbacks.common.telemetry import Telemetry

__all__ = [
    "About",
    "ArtifactKind",
    "FailureReason",
    "Operation",
    "Pending",
    "Reporting",
    "RestoreMode",
    "StorageMode",
    "Transfer",
    "catalog_acknowledge",
    "catalog_reserve",
    "environment",
    "materialize",
    "operation",
    "pending",
    "publish",
    "reporting",
    "stage",
    "upload",
    "validate",
]

TRANSFERS = (names.CheckpointOperation.UPLOAD, names.CheckpointOperation.MATERIALIZE)


class About(TypedDict, total=False):
    """The arguments of every operation, all optional. A missing one is taken from the enclosing operation, and
    `describe` adds one that becomes known later. A value that its attribute does not allow is left out, with a warning.

    Attributes:
        artifact_kind: one of `ArtifactKind`.
        storage_mode: one of `StorageMode`.
        snapshot_id: the snapshot's, derived from its content. It and all that follows are on the span only.
        restore_mode: of a restore, one of `RestoreMode`.
        source_run_id: of a restore, the run that saved the snapshot.
        source_attempt: of a restore, that run's attempt.
        source_engine_step: of a restore, the step at which it was saved.
        telemetry: publishes the operation, such as `AkkaTelemetryCallback.telemetry`; by default, the one of this
            process's run.
        parent: the operation that this one is a part of; by default, the one that encloses it in its thread or task.
            Name it where a pool of threads does the parts.
    """

    artifact_kind: str | None
    storage_mode: str | None
    snapshot_id: str | None
    restore_mode: str | None
    source_run_id: str | None
    source_attempt: int | None
    source_engine_step: int | None
    telemetry: Telemetry | None
    parent: Operation | None


def stage(**about: Unpack[About]) -> Operation:
    """Copies a checkpoint that the engine has committed to where nothing changes or removes it. Saves of the engines
    themselves are this operation, too, and are measured without your doing."""
    return operation(names.CheckpointOperation.STAGE, **about)


def publish(**about: Unpack[About]) -> Operation:
    """Publishes one staged snapshot, up to the catalog's durable acknowledgement. It encloses the next three."""
    return operation(names.CheckpointOperation.PUBLISH, **about)


def catalog_reserve(**about: Unpack[About]) -> Operation:
    """Reserves a snapshot with the catalog before its upload."""
    return operation(names.CheckpointOperation.CATALOG_RESERVE, **about)


def upload(**about: Unpack[About]) -> Transfer:
    """Transfers one kind of artifact to its durable storage. Say what moved with `moved`."""
    return _transfer(names.CheckpointOperation.UPLOAD, about)


def catalog_acknowledge(**about: Unpack[About]) -> Operation:
    """Waits for the catalog's durable acknowledgement after the upload."""
    return operation(names.CheckpointOperation.CATALOG_ACKNOWLEDGE, **about)


def validate(**about: Unpack[About]) -> Operation:
    """Checks a restore manifest and its descriptor before the payload is transferred."""
    return operation(names.CheckpointOperation.VALIDATE, **about)


def materialize(**about: Unpack[About]) -> Transfer:
    """Fetches a restore manifest and its payload into a temporary local folder. Say what moved with `moved`."""
    return _transfer(names.CheckpointOperation.MATERIALIZE, about)


def operation(name: str, **about: Unpack[About]) -> Operation:
    """One of the operations above by its name.

    Raises:
        ValueError: there is no operation of that name.
        TypeError: an argument that no operation has.
    """
    if name not in names.ATTR_CHECKPOINT_OPERATION.values:
        known = ", ".join(names.ATTR_CHECKPOINT_OPERATION.values)
        raise ValueError(f"{name!r} is no checkpoint operation; there are {known}")
    return _transfer(name, about) if name in TRANSFERS else Operation(name, *_split(about))


def pending(count: Callable[[], int]) -> Pending:
    """Publishes how many staged snapshots await durable publication, the one in flight included, until it is closed.

    Args:
        count: returns the current number; a thread of the telemetry calls it. Read the number from something that
            survives a crash, such as the folder of staged snapshots, so that it is right after a crash, too.
    """
    return Pending(count)


def reporting(
    *,
    run_id: str | None = None,
    attempt: int | None = None,
    project: str | None = None,
    resource: Mapping[str, Any] | None = None,
    meter_provider: MeterProvider | None = None,
    tracer_provider: TracerProvider | None = None,
) -> Reporting:
    """Telemetry for a publisher in another process than the training, or one that outlives it. It has the same run and
    the same trace. In the training's process it finds both by itself, and in another process by the variables of
    `environment`. Close it, or use it as a `with` block.

    Args:
        run_id: the run's ID, where neither way finds it.
        attempt: by default that of the run's other telemetry, as for all arguments that follow.
    """
    given = {names.ATTR_RUN_ID.name: run_id, names.ATTR_RUN_ATTEMPT.name: attempt, names.ATTR_PROJECT.name: project}
    said = {**(resource or {}), **{name: value for name, value in given.items() if value is not None}}
    return Reporting(said, os.environ, meter_provider=meter_provider, tracer_provider=tracer_provider)


def _transfer(name: str, about: About) -> Transfer:
    return Transfer(name, *_split(about))


def _split(about: About) -> tuple[Description, Telemetry | None, Operation | None]:
    described: dict[str, Any] = {**about}
    telemetry, parent = described.pop("telemetry", None), described.pop("parent", None)
    return Description().with_more(**described), telemetry, parent
