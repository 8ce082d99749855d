"""Whether a collector takes what is sent: one warning when it stops, one line when it takes it again."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from akka_otel_callbacks.common.log import logger
from akka_otel_callbacks.common.redaction import redact_text

ExporterT = TypeVar("ExporterT")


def watched(exporter: ExporterT, target: object) -> ExporterT:
    """A metric or span exporter, which from now on tells of failures once for each time that `target` goes away. The
    SDK logs every attempt, some five lines a minute for as long as a training runs."""
    Watch(exporter, target)
    return exporter


class Watch:
    """Stands in for one exporter's `export`."""

    def __init__(self, exporter: Any, target: object) -> None:
        self._target = target
        self._export = exporter.export
        self._failing = False
        exporter.export = self.export
        for base in type(exporter).__mro__:  # the SDK names a logger after each module
            _overheard.listen_to(logging.getLogger(base.__module__))

    def export(self, *args: Any, **kwargs: Any) -> Any:
        with _overheard.listening() as said:
            result = self._export(*args, **kwargs)
        self._tell(
            delivered=result.name == "SUCCESS", cause=redact_text(said[0], os.environ) if said else "no reason given"
        )
        return result

    def _tell(self, *, delivered: bool, cause: str) -> None:
        if not delivered and not self._failing:
            logger.warning(
                "%s does not take what is sent (training is not affected; further failures are not logged): %s",
                self._target,
                cause,
            )
        elif delivered and self._failing:
            logger.info("%s takes what is sent again", self._target)
        self._failing = not delivered


class _Overheard(logging.Filter):
    """Keeps back what the SDK logs of our exports, on the thread that exports; a program's own exporters log on."""

    def __init__(self) -> None:
        super().__init__()
        self._thread = threading.local()

    def listen_to(self, sdk_logger: logging.Logger) -> None:
        """Before the SDK's own filter, which drops what another exporter said within the last 20 s."""
        if self not in sdk_logger.filters:
            sdk_logger.filters.insert(0, self)

    def filter(self, record: logging.LogRecord) -> bool:
        said: list[str] | None = getattr(self._thread, "said", None)
        if said is None:
            return True
        said.append(record.getMessage())
        return False

    @contextmanager
    def listening(self) -> Iterator[list[str]]:
        said: list[str] = []
        self._thread.said = said
        try:
            yield said
        finally:
            self._thread.said = None


_overheard = _Overheard()
