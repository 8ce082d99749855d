"""Where the figures go: what the standard environment variables ask for.

`select` decides and has no side effect. A value that cannot be used costs one clear warning and falls to the next
choice, because a typo in an environment must not stop a training.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from akka_otel_callbacks.common.export.detail import Detail, detail
from akka_otel_callbacks.common.export.otlp.settings import OtlpVariables
from akka_otel_callbacks.common.export.signals import LOGS, METRICS, SIGNALS, TRACES
from akka_otel_callbacks.common.export.targets import KINDS, NONE, words
from akka_otel_callbacks.common.export.targets.file import FileTarget
from akka_otel_callbacks.common.export.targets.otlp import OtlpTarget
from akka_otel_callbacks.common.export.targets.prometheus import PORT, PrometheusTarget
from akka_otel_callbacks.common.export.targets.target import Asked, Schedule, Target
from akka_otel_callbacks.common.text import one_line

FOLDER = "AKKA_OTEL_DIR"
DEFAULT_INTERVAL_S = 60.0
STEP_PAUSE_S = 10.0
"""Seconds. A reported step is exported at once if the last export began this long ago, so a process that is killed has
lost no more than that. If the user set an interval, the interval alone holds."""
NO_LOGS = f"only OTEL_{LOGS}_EXPORTER or OTEL_EXPORTER_OTLP_{LOGS}_ENDPOINT asks for them"


@dataclass(frozen=True, slots=True)
class Selection:
    """What the environment asks for. An empty tuple: the signal is not exported, for `reason_none`."""

    metrics: tuple[Target, ...]
    traces: tuple[Target, ...]
    logs: tuple[Target, ...]
    schedule: Schedule
    files: Mapping[str, Path]
    """The embedded file of each signal, also if another target is chosen."""
    detail: Detail = Detail.JOB
    warnings: tuple[str, ...] = ()
    reason_none: str = ""

    def by_signal(self) -> Mapping[str, tuple[Target, ...]]:
        """The targets of each signal."""
        return {METRICS: self.metrics, TRACES: self.traces, LOGS: self.logs}

    def why_none(self, signal: str) -> str:
        """The reason why a signal is not exported."""
        return NO_LOGS if signal == LOGS and (self.metrics or self.traces) else self.reason_none


def select(environ: Mapping[str, str], run_id: str, writer: str = "") -> Selection:
    """Reads `OTEL_SDK_DISABLED`, `OTEL_{METRICS,TRACES}_EXPORTER`, the OTLP endpoint variables and
    `OTEL_EXPORTER_OTLP_PROTOCOL`, in this order; where none of them says anything, the embedded files in
    `AKKA_OTEL_DIR` (default `akka-otel/<run id>/`) take metrics and traces. Logs go out only where
    `OTEL_LOGS_EXPORTER` or a logs endpoint asks for them: a collector that takes metrics and traces often has no
    place for logs, and would refuse them.

    Args:
        environ: the process's environment.
        run_id: names the default folder.
        writer: where several processes of a run write, who this one is; it goes into the files' names.
    """
    folder = runs_folder(environ)
    directory = folder if _text(environ, FOLDER) else folder / _safe(run_id)
    files = {signal: directory / _file_name(signal.lower(), writer) for signal in SIGNALS}
    warnings: list[str] = []
    asked_interval_s = _interval_s(environ, warnings)
    schedule = Schedule(asked_interval_s or DEFAULT_INTERVAL_S, None if asked_interval_s else STEP_PAUSE_S)
    if _text(environ, "OTEL_SDK_DISABLED").lower() == "true":
        return Selection((), (), (), schedule, files, reason_none="OTEL_SDK_DISABLED is true")
    asked = {signal: _asked(environ, signal, files[signal], folder, warnings) for signal in (METRICS, TRACES)}
    if all(targets is None for targets in asked.values()):
        reason = "no exporter and no OTLP endpoint is configured"
        asked = {signal: (FileTarget(reason, files[signal]),) for signal in asked}
    return Selection(
        metrics=asked[METRICS] or (),
        traces=asked[TRACES] or (),
        logs=_asked_logs(environ, files[LOGS], folder, warnings),
        schedule=schedule,
        files=files,
        detail=detail(environ, warnings),
        warnings=tuple(warnings),
        reason_none="the environment asks for none or names a target for the other signal only",
    )


def runs_folder(environ: Mapping[str, str]) -> Path:
    """Where the runs have their files: one folder for all of them where the environment names one, else the one that
    holds the folders of the runs."""
    return Path(os.path.expanduser(_text(environ, FOLDER)) or "akka-otel")  # no shell expands a home in a YAML file


def beside_training(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment for a process beside the one that reports the steps. That one is scraped under the port that the
    environment names, and this one takes any other port."""
    return {**environ, PORT: "0"}


def also_in_files(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment for a process that may end before anybody scrapes it: its figures also go to files."""
    return _for_scrape(environ, f"{PrometheusTarget.kind},{FileTarget.kind}")


def without_scrape(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment for figures that nobody can scrape, such as those of a past run: files take the place of the
    scrape."""
    return _for_scrape(environ, FileTarget.kind)


def _for_scrape(environ: Mapping[str, str], kinds: str) -> dict[str, str]:
    asked = environ.get(f"OTEL_{METRICS}_EXPORTER", "")
    return {**environ, f"OTEL_{METRICS}_EXPORTER": asked.lower().replace(PrometheusTarget.kind, kinds)}


def _asked(
    environ: Mapping[str, str], signal: str, file: Path, folder: Path, warnings: list[str]
) -> tuple[Target, ...] | None:
    """The signal's targets. None if the environment says nothing of the signal."""
    variable = f"OTEL_{signal}_EXPORTER"
    said = [word.strip().lower() for word in environ.get(variable, "").split(",")]
    kinds = [kind for kind in dict.fromkeys(said) if kind]  # one named twice would export everything twice
    known = [kind for kind in kinds if kind in words(signal)]
    warnings.extend(
        f"{variable}={one_line(kind, 100)!r} is not one of {', '.join(words(signal))}; ignored"
        for kind in kinds
        if kind not in known
    )
    otlp = OtlpVariables(environ, signal, warnings)
    if not known and (otlp.endpoint_variable or otlp.wrong_endpoint):
        reason = f"{otlp.endpoint_variable} is set"
        return (OtlpTarget.asked(Asked(environ, signal, reason, file, folder, warnings)),)
    if not known:
        return None
    return tuple(
        KINDS[kind].asked(Asked(environ, signal, f"{variable}={kind}", file, folder, warnings))
        for kind in known
        if kind != NONE
    )


def _asked_logs(environ: Mapping[str, str], file: Path, folder: Path, warnings: list[str]) -> tuple[Target, ...]:
    own = f"OTEL_{LOGS}_EXPORTER", f"OTEL_EXPORTER_OTLP_{LOGS}_ENDPOINT"
    return (_asked(environ, LOGS, file, folder, warnings) or ()) if any(_text(environ, name) for name in own) else ()


def _file_name(signal: str, writer: str) -> str:
    return f"{signal}-{_safe(writer)}.jsonl" if writer else f"{signal}.jsonl"


def _safe(text: str) -> str:
    """The text as a file's name. An ID may hold any character, and the name must not leave its folder."""
    name = "".join(char if char.isalnum() or char in "-_." else "_" for char in text).lstrip(".")
    return name.encode()[:120].decode(errors="ignore") or "run"


def _interval_s(environ: Mapping[str, str], warnings: list[str]) -> float | None:
    """The interval that the user asks for. None if there is none, or if it cannot be used."""
    text = _text(environ, "OTEL_METRIC_EXPORT_INTERVAL")
    if not text:
        return None
    try:
        milliseconds = float(text)
    except ValueError:
        milliseconds = 0.0
    if 0 < milliseconds < float("inf"):
        return milliseconds / 1000
    warnings.append(
        f"OTEL_METRIC_EXPORT_INTERVAL={one_line(text, 100)!r} is not a positive number of milliseconds; 60000 is used"
    )
    return None


def _text(environ: Mapping[str, str], name: str) -> str:
    """A variable's value. An empty variable, or one of blanks only, counts as not set."""
    return environ.get(name, "").strip()
