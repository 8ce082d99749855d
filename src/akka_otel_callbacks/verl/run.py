"""The identity of the run that this process trains, or works for."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from akka_otel_callbacks.common.guard import guarded
from akka_otel_callbacks.common.run.handed_on import forwarded
from akka_otel_callbacks.verl.config import plain
from akka_otel_callbacks.verl.state import STATE

if TYPE_CHECKING:
    from akka_otel_callbacks.common.run.attempt import Attempt
    from akka_otel_callbacks.common.run.identity import RunIdentity

_finding_out = threading.Lock()


def identity(config: Any, environ: Mapping[str, str] = os.environ) -> RunIdentity:
    """The run's identity, the same from its first use to its end.

    Args:
        config: verl's configuration. None in a worker, which has the identity from the trainer's process. What of it
            cannot be worked out is not said.
        environ: the process's environment.
    """
    with _finding_out:
        if STATE.identity is None:
            STATE.identity = _identified(config, environ)
        return STATE.identity


def attempt(config: Any) -> Attempt:
    """The run's ID and attempt alone."""
    from akka_otel_callbacks.common.run.attempt import Attempt

    this = identity(config)
    return Attempt(this.run_id, this.attempt)


def job_span(environ: Mapping[str, str] = os.environ) -> Mapping[str, str]:
    """The run's span, as `TRACEPARENT` and `TRACESTATE`, also before it begins. It is for the process that has it, and
    the same from its first use to the run's end."""
    from akka_otel_callbacks.common.tracing.plan import planned

    with _finding_out:
        if STATE.job_span is None:
            STATE.job_span = planned(environ)
        return STATE.job_span


def is_known() -> bool:
    """Whether this process knows already who the run is."""
    return STATE.identity is not None


def adopt(attempt: Attempt) -> None:
    """Takes the ID and the attempt that another process of the run found out."""
    with _finding_out:
        STATE.shared_attempt = attempt


def end() -> None:
    """Ends the run in this process; another one that it begins has an ID or an attempt of its own."""
    with _finding_out:
        if STATE.identity is not None:
            STATE.trainings_ended[STATE.identity.run_id] += 1
        STATE.identity = STATE.shared_attempt = STATE.job_span = None


def _identified(config: Any, environ: Mapping[str, str]) -> RunIdentity:
    from akka_otel_callbacks.common.run.identity import identify
    from akka_otel_callbacks.common.vocabulary import names
    from akka_otel_callbacks.verl.settings import run_attributes

    handed_on = forwarded(environ)
    if (config := plain(config)) is None:
        return identify(environ, engine={}, arguments=handed_on)
    attempt = STATE.shared_attempt or _begun(config, environ, handed_on)
    chosen = {names.ATTR_RUN_ID.name: attempt.run_id, names.ATTR_RUN_ATTEMPT.name: attempt.number}
    return identify(environ, engine=guarded(run_attributes)(config) or {}, arguments={**handed_on, **chosen})


def _begun(config: Any, environ: Mapping[str, str], handed_on: Mapping[str, str]) -> Attempt:
    from akka_otel_callbacks.common.presence import is_published
    from akka_otel_callbacks.common.run.attempt import begin
    from akka_otel_callbacks.common.run.attributes import said
    from akka_otel_callbacks.common.run.identity import generated_run_id
    from akka_otel_callbacks.common.vocabulary import names
    from akka_otel_callbacks.verl.attempts import resumed

    run_id = said(names.ATTR_RUN_ID, environ, handed_on)
    return begin(
        environ,
        arguments=handed_on,
        generated_id=generated_run_id(names.RunEngine.VERL),
        is_published=partial(is_published, environ),
        resumed=resumed(config),
        before=STATE.trainings_ended[str(run_id)],
    )
