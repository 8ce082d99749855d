"""Who the run is that this process trains, or works for."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from akka_otel_callbacks.common.run.handed_on import forwarded
from akka_otel_callbacks.verl.config import plain

if TYPE_CHECKING:
    from akka_otel_callbacks.common.run.attempt import Attempt
    from akka_otel_callbacks.common.run.identity import RunIdentity

_known: RunIdentity | None = None
_adopted: Attempt | None = None
_trained: Counter[str] = Counter()
"""Trainings that ended in this process, by their run's ID."""
_finding_out = threading.Lock()


def identity(config: Any, environ: Mapping[str, str] = os.environ) -> RunIdentity:
    """The run's identity, the same from its first use to its end.

    Args:
        config: verl's configuration; None in a worker, which has the identity from the trainer's process.
        environ: the process's environment.
    """
    global _known
    with _finding_out:
        if _known is None:
            _known = _identified(config, environ)
        return _known


def attempt(config: Any) -> Attempt:
    """Its ID and attempt alone."""
    from akka_otel_callbacks.common.run.attempt import Attempt

    this = identity(config)
    return Attempt(this.run_id, this.attempt)


def is_known() -> bool:
    """Whether this process has found out already."""
    return _known is not None


def adopt(attempt: Attempt) -> None:
    """Takes the ID and the attempt that another process of the run found out."""
    global _adopted
    with _finding_out:
        _adopted = attempt


def end() -> None:
    """Ends the run in this process; another one that it begins has an ID or an attempt of its own."""
    global _known, _adopted
    with _finding_out:
        if _known is not None:
            _trained[_known.run_id] += 1
        _known = _adopted = None


def _identified(config: Any, environ: Mapping[str, str]) -> RunIdentity:
    from akka_otel_callbacks.common.run.identity import identify
    from akka_otel_callbacks.common.vocabulary import names
    from akka_otel_callbacks.verl.settings import run_attributes

    handed_on = forwarded(environ)
    if config is None:
        return identify(environ, engine={}, arguments=handed_on)
    config = plain(config)
    attempt = _adopted or _begun(config, environ, handed_on)
    chosen = {names.ATTR_RUN_ID.name: attempt.run_id, names.ATTR_RUN_ATTEMPT.name: attempt.number}
    return identify(environ, engine=run_attributes(config), arguments={**handed_on, **chosen})


def _begun(config: Any, environ: Mapping[str, str], handed_on: Mapping[str, str]) -> Attempt:
    from akka_otel_callbacks.common.run.attempt import begin
    from akka_otel_callbacks.common.run.identity import generated_run_id, said
    from akka_otel_callbacks.common.vocabulary import names
    from akka_otel_callbacks.verl.attempts import resumed

    run_id = said(names.ATTR_RUN_ID, environ, handed_on)
    return begin(
        environ,
        arguments=handed_on,
        generated_id=generated_run_id(names.RunEngine.VERL),
        resumed=resumed(config),
        before=_trained[str(run_id)],
    )
