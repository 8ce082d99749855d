"""What the environment means to verl: whether it loads the plugin, and where its workers' figures go."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.metadata import entry_points
from typing import NamedTuple

from akka_otel_callbacks.common.export.address_files import PATTERN
from akka_otel_callbacks.common.export.selection import Selection
from akka_otel_callbacks.common.export.targets.prometheus import PrometheusTarget
from akka_otel_callbacks.common.switches import EVERYTHING, is_off

GROUP, NAME, MODULE = "verl.plugins", "akka_otel", "akka_otel_callbacks.verl.plugin"
PLUGINS, MODULES = "VERL_USE_EXTERNAL_PLUGINS", "VERL_USE_EXTERNAL_MODULES"
WITH_ENTRY_POINTS = (0, 9)


class Finding(NamedTuple):
    """What is found. `ok` is None if it is only good to know."""

    ok: bool | None
    text: str


def findings(version: tuple[int, ...], environ: Mapping[str, str], selection: Selection) -> Iterator[Finding]:
    """What is to be said of verl, whose version is given by its first two numbers."""
    if is_off(EVERYTHING, environ):
        yield Finding(None, f"{EVERYTHING} is set: the logger {NAME} does nothing")
    elif reason := refusal(version, environ):
        yield Finding(False, f"verl refuses the logger {NAME}: {reason}")
    for target in selection.metrics:
        if isinstance(target, PrometheusTarget):
            files = target.folder / PATTERN
            yield Finding(None, f"each worker takes a free port, which stands in {files} on its own node")


def refusal(version: tuple[int, ...], environ: Mapping[str, str]) -> str | None:
    """Why verl does not load the plugin. None if verl loads it."""
    if MODULE in environ.get(MODULES, "").split(","):
        return None
    if version < WITH_ENTRY_POINTS:
        return f"before 0.9 it loads the plugin only with {MODULES}={MODULE}"
    policy = environ.get(PLUGINS, "auto").strip().lower()  # an empty one allows none
    if policy != "auto" and NAME not in [name.strip() for name in policy.split(",")]:
        return f"{PLUGINS}={environ[PLUGINS]} keeps the plugin out; set it to auto, or name {NAME} in it"
    if not any(entry.name == NAME for entry in entry_points(group=GROUP)):
        return "the plugin's entry point is not found; install akka-otel-callbacks in this environment"
    return None
