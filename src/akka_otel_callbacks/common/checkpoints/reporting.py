"""Telemetry of its own for a publisher of checkpoints: in another process of the run, or for longer than a training."""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from akka_otel_callbacks.common import switches
from akka_otel_callbacks.common.checkpoints import where
from akka_otel_callbacks.common.guard import guarded
from akka_otel_callbacks.common.run import current
from akka_otel_callbacks.common.run.handed_on import RUN_VARIABLE, forwarded, names_run, written
from akka_otel_callbacks.common.vocabulary import names

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

    from akka_otel_callbacks.common.run.identity import RunIdentity
    from akka_otel_callbacks.common.telemetry import Telemetry

TRACE = ("TRACEPARENT", "TRACESTATE")
WRITER = "checkpoints"
FLUSH_TIMEOUT_S = 2.0


class Reporting:
    """Operations of this process go here rather than to the telemetry of its training.

    It opens with its first operation, or at once where the run is known by then. The run is the one whose ID is given,
    else that of this process's training, else the one that `environment` handed to this process.

    Args:
        said: resource attributes by full name.
        environ: the process's environment.
        meter_provider: exports the metrics instead of a provider of its own.
        tracer_provider: the same for spans.
    """

    def __init__(
        self,
        said: Mapping[str, Any],
        environ: Mapping[str, str] = os.environ,
        *,
        meter_provider: MeterProvider | None = None,
        tracer_provider: TracerProvider | None = None,
    ) -> None:
        self._said, self._environ = said, environ
        self._providers: dict[str, Any] = {"meter_provider": meter_provider, "tracer_provider": tracer_provider}
        self._telemetry: Telemetry | None = None
        self._closed = switches.is_off(switches.EVERYTHING, environ)
        self._opening = threading.RLock()
        where.add(self)
        if names.ATTR_RUN_ID.name in said or current.current() is not None or names_run(environ):
            self._open()

    @property
    def telemetry(self) -> Telemetry | None:
        """What publishes the operations. None if everything is switched off, and after the end."""
        if self._telemetry is None:
            self._open()
        return self._telemetry

    def flush(self, timeout_s: float = FLUSH_TIMEOUT_S) -> bool:
        """Exports now, and waits for at most that long. False where it did not end in time."""
        return self._telemetry is None or self._telemetry.flush(timeout_s)

    def close(self) -> None:
        """Exports what is left, for at most two seconds."""
        where.remove(self)
        with self._opening:
            self._closed = True
        if self._telemetry is not None:
            self._telemetry.close()

    def __enter__(self) -> Reporting:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @guarded
    def _open(self) -> None:
        from akka_otel_callbacks.common.export.selection import also_in_files, beside_training
        from akka_otel_callbacks.common.telemetry import Telemetry

        with self._opening:
            if self._closed or self._telemetry is not None:
                return
            training = current.current()
            name = f"{WRITER}-{secrets.token_hex(4)}"
            self._telemetry = Telemetry.start(
                _identity(self._said, self._environ, training, name),
                None,
                environ=also_in_files(beside_training(self._environ)),
                writer=name,
                within=_trace(self._environ) if training is None else training.trace.variables(),
                **self._providers,
            )


def environment(telemetry: Telemetry | None = None) -> dict[str, str]:
    """The variables by which another process finds the run and its trace. Empty where no telemetry is open."""
    telemetry = telemetry or current.current()
    if telemetry is None:
        return {}
    return {RUN_VARIABLE: written(telemetry.identity.attributes), **telemetry.trace.variables()}


def _identity(
    said: Mapping[str, Any], environ: Mapping[str, str], training: Telemetry | None, name: str
) -> RunIdentity:
    from akka_otel_callbacks.common.run.identity import RunIdentity, identify

    instance = names.ATTR_SERVICE_INSTANCE_ID.name
    if training is not None:
        known: Mapping[str, Any] = {**training.identity.attributes}
    else:
        known = forwarded(environ) if names_run(environ) else {}
    found = identify(environ, engine={}, arguments={**known, **said})
    own = said.get(instance, f"{found.run_id}.{found.attempt}.{name}")
    return RunIdentity({**found.attributes, instance: str(own)})


def _trace(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: environ[name] for name in TRACE if environ.get(name)}
