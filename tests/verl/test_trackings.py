"""verl's `Tracking` in every life that it may lead: several in a process, alive at the exit, in a forked child."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("verl", reason="verl is not installed in this environment")

from akka_otel_callbacks.common.vocabulary import names

SCRIPT = """
import json, os, sys
from verl.utils.tracking import Tracking
CONFIG = {"trainer": {"logger": ["akka_otel"]}, "actor_rollout_ref": {"model": {}}}

def make(logger=("akka_otel",)):
    return Tracking("p", "e", list(logger), CONFIG)

def log(tracking, step):
    tracking.log({"training/global_step": step, "critic/score/mean": 0.5}, step=step)

# Importing verl takes long. Each life is one of a fork, which ends as any interpreter does.
for number, body in enumerate(json.load(sys.stdin)):
    if os.fork() == 0:
        os.environ["AKKA_OTEL_DIR"] = os.path.join(sys.argv[1], str(number))
        os.makedirs(os.environ["AKKA_OTEL_DIR"])
        os.dup2(os.open(os.path.join(os.environ["AKKA_OTEL_DIR"], "stderr"), os.O_CREAT | os.O_WRONLY), 2)
        exec(body)
        break
    assert os.wait()[1] == 0, body
"""
LIVES = {
    "a global": "tracking = make()\nlog(tracking, 1)",
    "a global of a run that did not ask": "tracking = make(['console'])",
    "an attribute of a module that is taken down last": "sys.kept = make()\nlog(sys.kept, 1)",
    "a cycle": "tracking = make()\ntracking.me = tracking\nlog(tracking, 1)\ndel tracking",
    "a cycle that a thread of the telemetry's finds": (
        "import gc, threading, time\nfrom akka_otel_callbacks.common.export.producer import Producer\n"
        "hear, gone = Producer.hear, threading.Event()\ndef finds(*given):\n    gone.wait()\n    gc.collect()\n"
        "    hear(*given)\nProducer.hear = finds\ngc.disable()\ntracking = make()\ntracking.me = tracking\n"
        "backend = tracking.logger['akka_otel']\nlog(tracking, 1)\ndel tracking\ngone.set()\nbegan = time.monotonic()\n"
        "while not backend._telemetry.closed and time.monotonic() - began < 20:\n    time.sleep(0.01)\n"
        "assert backend._telemetry.closed"
    ),
    "one whose configuration cannot be worked out": (
        "from omegaconf import OmegaConf\nconfig = OmegaConf.create({**CONFIG, 'x': '${nowhere}'})\n"
        "tracking = Tracking('p', 'e', ['akka_otel'], config)\nlog(tracking, 1)\ntracking.finish()"
    ),
    "held by a thread": (
        "import threading, time\ntracking = make()\nlog(tracking, 1)\n"
        "threading.Thread(target=lambda t=tracking: time.sleep(60), daemon=True).start()"
    ),
    "one that was refused": "try:\n    make(['no_such'])\nexcept AssertionError:\n    pass",
    "one that was finished": "tracking = make()\nlog(tracking, 1)\ntracking.finish()",
    "one that an error leaves": (
        "def fit():\n    tracking = make()\n    log(tracking, 1)\n    raise KeyboardInterrupt\n"
        "try:\n    fit()\nexcept KeyboardInterrupt as error:\n    kept = error"
    ),
    "two of one run": (
        "first, second = make(), make(['console', 'akka_otel'])\nassert first.logger['akka_otel'] is "
        "second.logger['akka_otel']\nlog(first, 1)\nsecond.finish()\nlog(first, 2)\nfirst.finish()"
    ),
    "one after the other": "for _ in range(2):\n    tracking = make()\n    log(tracking, 1)\n    tracking.finish()",
    "one that is copied": (
        "import copy, gc\ntracking = make()\nlog(tracking, 1)\nfor clone in (copy.copy, copy.deepcopy):\n"
        "    log(clone(tracking), 2)\n    gc.collect()\nlog(tracking, 3)\ntracking.finish()"
    ),
    "one of a trainer that is pickled": (
        "import pickle\ntracking = make()\nlog(tracking, 1)\nclone = pickle.loads(pickle.dumps(tracking))\n"
        "clone.logger['akka_otel']._said = True\nlog(clone, 2)\nclone.finish()\ndel clone\ntracking.finish()"
    ),
    "one of a user's class with a logger of another kind": (
        "import logging\nclass Users(Tracking):\n    def __init__(self):\n"
        "        self.logger, self._finished = logging.getLogger(), True\nUsers().finish()\ndel Users"
    ),
    "one in a forked child too": (
        "tracking = make()\nlog(tracking, 1)\npid = os.fork()\nif pid == 0:\n    tracking.finish()\n    del tracking\n"
        "    sys.exit()\nos.waitpid(pid, 0)\nlog(tracking, 2)\ntracking.finish()"
    ),
}
STEPS = {
    "two of one run": {1: [2]},
    "one that is copied": {1: [3]},
    "one after the other": {1: [1, 1]},
    "one in a forked child too": {1: [2]},
}
"""Steps of each run at its end; one run of one step where nothing is said."""
SILENT = {
    "a global of a run that did not ask",
    "one that was refused",
    "one of a user's class with a logger of another kind",
}


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, list[dict[str, Any]]]]:
    """By life, what the process printed as errors, and the embedded file's exports."""
    directory = tmp_path_factory.mktemp("lives")
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "AKKA_"))}
    command = [sys.executable, "-c", SCRIPT, str(directory)]
    told = json.dumps(list(LIVES.values()))
    done = subprocess.run(command, env=environ, input=told, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return {life: left(directory / str(number)) for number, life in enumerate(LIVES)}


def left(directory: Path) -> tuple[str, list[dict[str, Any]]]:
    file = directory / "metrics.jsonl"
    exports = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    return (directory / "stderr").read_text(), exports


def last_counts(exports: list[dict[str, Any]]) -> list[int]:
    """The steps that each run has counted at its end."""
    counts: dict[str, int] = {}
    for export in exports:
        for resource in export["resourceMetrics"]:
            attributes = {item["key"]: item["value"] for item in resource["resource"]["attributes"]}
            run = attributes[names.ATTR_RUN_ID.name]["stringValue"]
            for scope in resource["scopeMetrics"]:
                for metric in scope["metrics"]:
                    if metric["name"] == names.RL_STEP_COUNT.name:
                        counts[run] = int(metric["sum"]["dataPoints"][-1]["asInt"])
    return list(counts.values())


@pytest.mark.parametrize("life", LIVES)
def test_no_life_of_it_ends_with_a_traceback_or_without_its_steps(life: str, lived: Any) -> None:
    stderr, exports = lived[life]
    assert "Traceback" not in stderr
    assert "Exception ignored" not in stderr
    assert "telemetry failed" not in stderr
    expected = [] if life in SILENT else STEPS.get(life, {1: [1]})[1]
    assert last_counts(exports) == expected
    assert ("figures go to" in stderr) is bool(expected)
