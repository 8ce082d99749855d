"""Everything that ends with a telemetry: device samplers, endpoints, threads of users' own sources."""

from __future__ import annotations

from collections.abc import Callable

from akka_otel_callbacks.common.guard import report
from akka_otel_callbacks.common.threads import Closer


class Hooks(Closer):
    """Calls the ends one after another on a thread of its own, since a driver may take as long as it likes."""

    def __init__(self) -> None:
        super().__init__("hooks", self._end_all)
        self._ends: list[Callable[[], None]] = []

    def add(self, end: Callable[[], None]) -> None:
        self._ends.append(end)

    def _end_all(self) -> None:
        for end in self._ends:
            try:
                end()
            except Exception as error:  # noqa: BLE001 - drivers and users' code raise whatever they raise
                report("the end of a source", error)
