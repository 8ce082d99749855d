"""What a step costs by its size, from 32 rollouts with 3 reward terms to 8192 with 4, and what an unread scrape costs.

`python -m benchmarks.large_steps`. The training thread's time is that of all the events of a step. Translation and
export are CPU of the other threads; they run beside the training, and take turns with it for the interpreter. The
export is one of OTLP, to a collector in a process of its own, with `STEPS` steps in it.

Then a `/metrics` that nobody reads for 10,000 steps: the longest that the training thread stood still, the memory that
piled up, and how long a scrape takes while steps go on.
"""

from __future__ import annotations

import gc
import logging
import os
import socket
import statistics
import sys
import tempfile
import threading
import time
import urllib.request
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import stand_in
from benchmarks.contender import compute
from benchmarks.sink import Sink, sink
from benchmarks.step_cost import target

SIZES = ((32, 3), (64, 3), (128, 3), (256, 8), (512, 4), (1024, 4), (2048, 4), (4096, 8), (8192, 4))
STEPS = 10
UNREAD_STEPS = 10_000
TARGET_STOP_MS, TARGET_SCRAPE_MS, TARGET_BYTES = 5.0, 200.0, 6000


class Cost(NamedTuple):
    """Of one step."""

    thread_us: float
    translation_ms: float
    export_ms: float
    encoded_bytes: float
    sent_bytes: float


class Training:
    """The stand-in with our callback, in an environment."""

    def __init__(self, folder: Path, variables: Mapping[str, str], rollouts: int, terms: int) -> None:
        from akka_otel_callbacks.trl import AkkaTelemetryCallback

        names = [f"term-{number}" for number in range(terms)]
        self.trainer = stand_in.own_class()(folder, rollouts, names)
        self.callback = AkkaTelemetryCallback(peak_flops=1e12)
        os.environ.update(variables)
        try:
            self.callback.attach(self.trainer)
            stand_in.begin(self.trainer, [self.callback])
        finally:
            for name in variables:
                del os.environ[name]

    def step(self) -> float:
        """Returns the seconds that the training thread spent."""
        start = time.perf_counter()
        stand_in.step(self.trainer, [self.callback])
        return time.perf_counter() - start

    def catch_up(self) -> None:
        assert self.callback.telemetry is not None
        self.callback.telemetry._steps.catch_up(60)

    def export(self) -> None:
        assert self.callback.telemetry is not None
        assert self.callback.telemetry.flush(60)

    def close(self) -> None:
        self.callback._session.close()


def cost(folder: Path, collector: Sink, rollouts: int, terms: int, rounds: int = 5) -> Cost:
    training = Training(folder, {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url}, rollouts, terms)
    plain = stand_in.own_class()(folder, rollouts, training.trainer.reward_func_names)
    training.step()
    training.export()
    seconds, without, translations, exports, sizes = [], [], [], [], []
    for _ in range(rounds):
        without += [_timed(lambda: stand_in.step(plain, [])) for _ in range(STEPS)]
        with _other_threads() as translation:
            for _ in range(STEPS):
                seconds.append(training.step())
                training.catch_up()
        before = collector.received()
        with _other_threads() as export:
            training.export()
        after = collector.received()
        translations.append(translation[0] / STEPS)
        exports.append(export[0] / STEPS)
        sizes.append(((after.encoded - before.encoded) / STEPS, (after.sent - before.sent) / STEPS))
    training.close()
    return Cost(
        (statistics.median(seconds) - statistics.median(without)) * 1e6,
        statistics.median(translations) * 1e3,
        statistics.median(exports) * 1e3,
        *map(statistics.median, zip(*sizes, strict=True)),
    )


def _timed(call: Any) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


@contextmanager
def _other_threads() -> Iterator[list[float]]:
    """Seconds of CPU of all threads but this one."""
    took = [0.0]
    every, own = time.process_time(), time.thread_time()
    yield took
    took[0] = (time.process_time() - every) - (time.thread_time() - own)


class Unread(NamedTuple):
    stop_ms: float
    machine_ms: float
    """The longest of the same steps without telemetry: what the machine does to any thread."""
    memory_mb: float
    scrape_ms: float
    """The slowest of some scrapes while steps go on."""


def unread(folder: Path, rollouts: int = 64, terms: int = 3) -> Unread:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    training = Training(
        folder,
        {
            "OTEL_METRICS_EXPORTER": "prometheus",
            "OTEL_EXPORTER_PROMETHEUS_HOST": "127.0.0.1",
            "OTEL_EXPORTER_PROMETHEUS_PORT": str(port),
        },
        rollouts,
        terms,
    )
    plain = stand_in.own_class()(folder, rollouts, training.trainer.reward_func_names)
    stops, without, scrapes = [], [], []
    for number in range(UNREAD_STEPS):
        stops.append(training.step())
        compute()
        without.append(_timed(lambda: stand_in.step(plain, [])))
        if number == UNREAD_STEPS // 10:
            gc.collect()
            early_mb = _resident_mb()
    late_mb = _resident_mb()

    def timed_scrapes() -> None:
        for _ in range(10):
            start = time.perf_counter()
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as response:
                response.read()
            scrapes.append(time.perf_counter() - start)

    reader = threading.Thread(target=timed_scrapes)
    reader.start()
    while reader.is_alive():
        training.step()
        compute()
    training.close()
    return Unread(max(stops) * 1e3, max(without) * 1e3, late_mb - early_mb, max(scrapes) * 1e3)


def _resident_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6


def main() -> None:
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    print(f"\nA GRPO step by its size, Python {sys.version.split()[0]}; an export has {STEPS} steps\n")
    heads = ("training thread", "translation", "export", "encoded", "sent")
    print(f"{'rollouts x terms':18}" + "".join(f"{head:>17}" for head in heads))
    costs = {}
    with tempfile.TemporaryDirectory() as folder, sink() as collector:
        for rollouts, terms in SIZES:
            costs[rollouts, terms] = one = cost(Path(folder), collector, rollouts, terms)
            print(
                f"{f'{rollouts} x {terms}':18}{one.thread_us:14.0f} µs{one.translation_ms:14.2f} ms"
                f"{one.export_ms:14.2f} ms{one.encoded_bytes:15.0f} B{one.sent_bytes:15.0f} B"
            )
        found = unread(Path(folder))
    print(f"\n/metrics that nobody reads for {UNREAD_STEPS} steps of 64 x 3\n")
    print(f"longest step of the training thread {found.stop_ms:.1f} ms, without telemetry {found.machine_ms:.1f} ms")
    print(f"memory {found.memory_mb:+.1f} MB, slowest scrape under load {found.scrape_ms:.0f} ms\n")
    target("bytes of a step of 32 x 3, before compression", costs[32, 3].encoded_bytes, TARGET_BYTES)
    target("longest step, ms", found.stop_ms, TARGET_STOP_MS)
    target("slowest scrape under load, ms", found.scrape_ms, TARGET_SCRAPE_MS)


if __name__ == "__main__":
    main()
