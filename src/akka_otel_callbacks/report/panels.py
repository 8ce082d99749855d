"""The panels of a page."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from akka_otel_callbacks.report.history import History
from akka_otel_callbacks.report.panel import Panel
from akka_otel_callbacks.report.rl_panels import PANELS as RL
from akka_otel_callbacks.report.sft_panels import PANELS as SFT


def panels_of(runs: Iterable[History]) -> list[Panel]:
    """The panels of the runs' kinds. A panel that both kinds have shows the charts of both."""
    kinds = {run.is_supervised for run in runs}
    found: dict[str, Panel] = {}
    for panel in (*(RL if False in kinds else ()), *(SFT if True in kinds else ())):
        known = found.get(panel.name, panel)
        found[panel.name] = known if known is panel else replace(known, charts=[*known.charts, *panel.charts])
    return [*found.values()]
