"""What the package costs beside the steps: imports, resident memory, the start and the end of a training.

`python -m benchmarks.footprint` runs each measurement in processes of its own and prints medians. The memory is that of
the callback with the OTLP/HTTP exporter after a hundred steps, over the same steps without it. The end runs from a
script's last line to the end of its process, with a collector that answers, refuses or never answers.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.common.scripts import PRELUDE
from tests.support.otlp_sink import otlp_sink, refusing, silent

ROOT = Path(__file__).parents[1]
TARGET_IMPORT_MS, TARGET_MEMORY_MB, TARGET_END_S = 30.0, 25.0, 2.5

IMPORT = """
import json, sys, time
start = time.perf_counter()
import akka_otel_callbacks
print(json.dumps({"import": (time.perf_counter() - start) * 1e3}))
assert "torch" not in sys.modules
"""
TRAINING = """
import gc, json, tempfile, time
from pathlib import Path
from benchmarks import stand_in
trainer, callbacks, took = stand_in.GRPOTrainer(Path(tempfile.mkdtemp())), [], {}
if WITH_CALLBACK:
    start = time.perf_counter()
    from akka_otel_callbacks.trl import AkkaTelemetryCallback
    imported = time.perf_counter()
    callbacks = [AkkaTelemetryCallback().attach(trainer)]
    stand_in.begin(trainer, callbacks)
    took = {"import": (imported - start) * 1e3, "begin": (time.perf_counter() - imported) * 1e3}
for number in range(100):
    stand_in.step(trainer, callbacks)
    if callbacks and number % 10 == 0:
        callbacks[0].telemetry.flush(10)
gc.collect()
pages = int(Path("/proc/self/statm").read_text().split()[1])
print(json.dumps(took | {"memory": pages * 4096 / 1e6}))
"""
END = """
telemetry = start()
for number in range(1, 4):
    telemetry.capture(Report(grpo_step(number)), step=True)
telemetry.flush(0)
time.sleep(0.3)
print(json.dumps({"last line": time.monotonic()}), flush=True)
"""


class Programs:
    """Runs programs again and again, with their bytecode kept as an installed package has it."""

    def __init__(self, rounds: int, bytecode: str) -> None:
        self._rounds = rounds
        self._environ = {**os.environ, "PYTHONPYCACHEPREFIX": bytecode}
        self._environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "src")])
        self._environ.pop("PYTHONDONTWRITEBYTECODE", None)

    def medians(self, source: str, **variables: str) -> dict[str, float]:
        """The numbers that a program prints, and under `end` what its end took, after one run that is not counted."""
        runs = [self._run(source, variables) for _ in range(self._rounds + 1)][1:]
        return {name: statistics.median(run[name] for run in runs) for name in runs[0]}

    def _run(self, source: str, variables: dict[str, str]) -> dict[str, float]:
        with tempfile.TemporaryDirectory() as folder:
            program = subprocess.run(
                [sys.executable, "-W", "ignore", "-c", source],
                env=self._environ | variables,
                cwd=folder,
                capture_output=True,
                text=True,
                check=True,
            )
            ended = time.monotonic()
        printed: dict[str, float] = json.loads(program.stdout)
        return printed | {"end": ended - printed.get("last line", ended)}


@contextmanager
def answering() -> Iterator[str]:
    with otlp_sink() as sink:
        yield sink.http


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="processes of each measurement")
    with tempfile.TemporaryDirectory() as bytecode:
        measure(Programs(parser.parse_args().rounds, bytecode))


def measure(programs: Programs) -> None:
    show("import akka_otel_callbacks, ms", programs.medians(IMPORT)["import"], TARGET_IMPORT_MS)
    with answering() as url:
        ours = programs.medians(f"WITH_CALLBACK = True{TRAINING}", OTEL_EXPORTER_OTLP_ENDPOINT=url)
    alone = programs.medians(f"WITH_CALLBACK = False{TRAINING}")
    show("resident memory with OTLP/HTTP, MB", ours["memory"] - alone["memory"], TARGET_MEMORY_MB)
    show("import of the TRL callback beside transformers, ms", ours["import"])
    show("begin of a training with OTLP/HTTP, ms", ours["begin"])
    for name, collector in (("answers", answering), ("refuses", refusing), ("never answers", silent)):
        for protocol in ("http/protobuf", "grpc"):
            if (name, protocol) != ("answers", "grpc"):
                with collector() as url:
                    variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_EXPORTER_OTLP_PROTOCOL": protocol}
                    end = programs.medians(PRELUDE + END, **variables)["end"]
                show(f"end of the process, {protocol} collector that {name}, s", end, TARGET_END_S)


def show(name: str, value: float, limit: float | None = None) -> None:
    verdict = "" if limit is None else "reached" if value <= limit else "MISSED"
    target = "" if limit is None else f", target at most {limit:.3g}"
    print(f"{verdict:7}  {name}: {value:.4g}{target}", flush=True)


if __name__ == "__main__":
    main()
