"""Whether a target can be used: what `doctor` finds out before a training does."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from akka_otel_callbacks.common.export.exporters import why
from akka_otel_callbacks.common.export.selection import Target
from akka_otel_callbacks.common.text import one_line

PATIENCE_S = 2.0


@dataclass(slots=True)
class Answer:
    """What became of a probe. `ok` is None where there is nothing to find out."""

    ok: bool | None
    text: str = ""


def probe(targets: Iterable[tuple[str, Target]]) -> list[Answer]:
    """Tries all targets at once, each for at most `PATIENCE_S` seconds. An OTLP endpoint is sent an empty export by the
    exporter that a training would use, so that protocol, headers and certificates are tried with it."""
    waiting = [_begin(signal, target) for signal, target in targets]
    deadline = time.monotonic() + PATIENCE_S
    return [finish(deadline) for finish in waiting]


def _begin(signal: str, target: Target) -> Callable[[float], Answer]:
    """Starts a probe; the returned function waits for its answer until a deadline."""
    if target.kind == "otlp":
        return _begin_export(signal, target)
    if target.address is not None:
        host, port = target.address
        return lambda _: _is_free(host, port)
    if target.path is not None:
        path = target.path
        return lambda _: _can_be_written(path)
    return lambda _: Answer(None)


def _begin_export(signal: str, target: Target) -> Callable[[float], Answer]:
    answers: list[Answer] = []

    def run() -> None:
        try:
            answers.append(_empty_export(signal, target))
        except Exception as error:  # noqa: BLE001 - libraries raise whatever they raise
            answers.append(Answer(False, one_line(why(error))))

    thread = threading.Thread(target=run, daemon=True)  # it may hang for as long as it likes
    thread.start()

    def finish(deadline: float) -> Answer:
        thread.join(max(deadline - time.monotonic(), 0))
        return answers[0] if answers else Answer(False, f"no answer within {PATIENCE_S:.0f} s")

    return finish


def _empty_export(signal: str, target: Target) -> Answer:
    from akka_otel_callbacks.common.export.otlp.exporters import REQUESTS, Delivery

    delivery = Delivery(target)
    reply = delivery.once(REQUESTS[signal](), 2 * PATIENCE_S)
    delivery.close()
    if not reply.delivered:
        return Answer(False, reply.reason)
    return Answer(True, ": ".join(part for part in ("answers, and accepted an empty export", reply.reason) if part))


def _is_free(host: str, port: int) -> Answer:
    try:
        import opentelemetry.exporter.prometheus  # noqa: F401
    except ImportError as error:
        return Answer(False, one_line(why(error)))
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, *_, address = found[0]  # as prometheus_client chooses
        socket.create_server((address[0], port), family=family).close()
    except (OSError, UnicodeError) as error:  # UnicodeError: no name of a host can look like this
        return Answer(False, f"the address cannot be opened: {getattr(error, 'strerror', None) or error}")
    return Answer(True, "the address is free")


def _can_be_written(path: Path) -> Answer:
    try:
        existing = next(place for place in (path, *path.absolute().parents) if place.exists())
        if existing == path and not path.is_file():
            return Answer(False, f"{existing} is in the way")
        if existing != path and not existing.is_dir():
            return Answer(False, f"{existing} is in the way")
    except OSError as error:  # a name that is too long, a working folder that is gone
        return Answer(False, f"{path}: {error.strerror or error}")
    if not os.access(existing, os.W_OK):
        return Answer(False, f"{existing} cannot be written")
    return Answer(True, "can be written")
