"""`akka-otel doctor`: where a training started here would send its telemetry, whether that works, and as whom."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.metadata import version

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from akka_otel_callbacks import __version__
from akka_otel_callbacks.cli.gpus import gpus
from akka_otel_callbacks.cli.output import printable, stdout, stop
from akka_otel_callbacks.cli.probe import probe
from akka_otel_callbacks.cli.verl_checks import findings
from akka_otel_callbacks.common.export.redaction import header_names, redact_attribute, redact_text
from akka_otel_callbacks.common.export.selection import Selection, select
from akka_otel_callbacks.common.export.targets.target import Answer, Target
from akka_otel_callbacks.common.run.identity import identify
from akka_otel_callbacks.common.switches import EVERYTHING, is_off

LONGEST = 1000
"""The most characters that are shown of a finding's line."""
MARKS = {True: Text("✓", style="green"), False: Text("✗", style="red"), None: Text("·", style="dim")}


@dataclass(frozen=True, slots=True)
class Package:
    """An engine or a library that matters to it. Versions are compared by their first two numbers.

    Attributes:
        least: the oldest supported version.
        full: the oldest version with every figure, where that is a newer one.
        hint: what a user of it should know.
    """

    name: str
    least: tuple[int, int] = (0, 0)
    full: tuple[int, int] = (0, 0)
    hint: str = ""


PACKAGES = (
    Package("trl", least=(0, 20), full=(0, 24)),
    Package("transformers", least=(4, 57)),
    Package(
        "verl",
        least=(0, 6),
        full=(0, 9),
        hint="rollout servers publish vLLM's own metrics only with "
        "actor_rollout_ref.rollout.disable_log_stats=False, which is not verl's default",
    ),
    Package("ray"),
    Package("torch"),
    Package("opentelemetry-sdk", least=(1, 33)),
)


def doctor() -> None:
    """Prints the findings. The exit code is 1 if a training's telemetry would not arrive as the environment asks."""
    environ, console = os.environ, stdout()
    healthy = True
    try:
        identity = identify(environ, engine={})
        selection = _selection(environ, identity.run_id)
        healthy = _export(selection, environ, console)
        healthy &= _engines(environ, selection, console)
        _identity(identity.attributes, console)
    except OSError:  # of stdout, which `main` tells; every probe has told its own
        raise
    except Exception as error:  # a doctor who dies helps nobody
        text = redact_text(f"{type(error).__name__}: {error}", environ)
        raise stop(f"What follows could not be found out. {text}", code=1) from error
    if not healthy:
        raise typer.Exit(1)


def _selection(environ: Mapping[str, str], run_id: str) -> Selection:
    selection = select(environ, run_id)
    if is_off(EVERYTHING, environ):
        return replace(selection, metrics=(), traces=(), logs=(), reason_none=f"{EVERYTHING} is set")
    return selection


def _export(selection: Selection, environ: Mapping[str, str], console: Console) -> bool:
    signals = selection.by_signal()
    targets = [(signal, target) for signal, chosen in signals.items() for target in chosen]
    answers = probe(target for _, target in targets)
    table = _table("Export")
    for (signal, target), answer in zip(targets, answers, strict=True):
        _add(table, MARKS[answer.ok], signal.lower(), str(target), _said(target, answer, environ))
    for signal, chosen in signals.items():
        if not chosen:
            _add(table, MARKS[None], signal.lower(), "not exported", selection.why_none(signal))
    for warning in selection.warnings:
        _add(table, MARKS[False], "warning", redact_text(warning, environ))
    if names := header_names(environ):
        _add(table, MARKS[None], "headers", ", ".join(f"{name}=***" for name in names))
    console.print(table)
    return not selection.warnings and all(answer.ok is not False for answer in answers)


def _said(target: Target, answer: Answer, environ: Mapping[str, str]) -> str:
    return "\n".join(part for part in (target.reason, redact_text(answer.text, environ)) if part)


def _engines(environ: Mapping[str, str], selection: Selection, console: Console) -> bool:
    table, healthy = _table("Engines and GPUs"), True
    _add(table, MARKS[None], "akka-otel-callbacks", __version__)
    _add(table, MARKS[None], "python", platform.python_version())
    for package in PACKAGES:
        found = _version(package.name)
        ok, verdict = _supported(package, found) if found else (None, "")
        _add(table, MARKS[ok], package.name, found or "not installed", verdict)
        if found and package.hint:
            _add(table, "", "", "", package.hint)
        if found and package.name == "verl":
            for finding in findings(_numbers(found), environ, selection):
                _add(table, MARKS[finding.ok], "", "", finding.text)
                healthy &= finding.ok is not False
    answer = gpus()
    _add(table, MARKS[answer.ok], "GPUs", "", answer.text)
    console.print(table)
    return healthy


def _supported(package: Package, found: str) -> tuple[bool, str]:
    numbers = _numbers(found)
    if numbers < package.least:
        return False, f"not supported: {_dotted(package.least)} or newer is"
    if numbers < package.full:
        return True, f"supported with fewer figures: {_dotted(package.full)} or newer has them all"
    return True, "supported"


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])


def _identity(attributes: Mapping[str, object], console: Console) -> None:
    table = _table("Identity, to which the engine adds what its configuration says")
    for name, value in sorted(attributes.items()):
        _add(table, "", name, redact_attribute(name, value))
    console.print(table)


def _table(title: str) -> Table:
    table = Table(box=None, title=title, title_justify="left", title_style="bold", show_header=False, pad_edge=False)
    for _ in range(4):
        table.add_column(overflow="fold")
    return table


def _add(table: Table, mark: Text | str, *cells: str) -> None:
    """Adds a row. Its text may come from anybody, so it is printed in a form that cannot command the terminal."""
    table.add_row(mark, *("\n".join(printable(line, LONGEST) for line in cell.splitlines()) for cell in cells))


def _version(package: str) -> str | None:
    try:
        return version(package) or None
    except Exception:  # noqa: BLE001 - not installed, or so badly that nothing says its version
        return None


def _dotted(numbers: tuple[int, ...]) -> str:
    return ".".join(map(str, numbers))
