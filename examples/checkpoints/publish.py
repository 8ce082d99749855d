"""A publisher in a process of its own, until its input ends: `train.py --process` starts it."""

from __future__ import annotations

import argparse
import sys
import threading

from checkpoint_publisher.catalog import Catalog
from checkpoint_publisher.options import add_options, store_of
from checkpoint_publisher.publisher import Publisher
from checkpoint_publisher.staging import Staging

from akka_otel_callbacks import checkpoints

LOOK_S = 0.2


def _wait_for_end(ended: threading.Event) -> None:
    sys.stdin.read()
    ended.set()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add_options(parser)
    chosen = parser.parse_args()
    publisher = Publisher(Staging(chosen.work / "staging"), store_of(chosen), Catalog(chosen.work / "catalog.db"))
    ended = threading.Event()
    threading.Thread(target=_wait_for_end, args=(ended,), daemon=True).start()
    with checkpoints.pending(publisher.pending), checkpoints.reporting():
        while not ended.wait(LOOK_S):
            publisher.publish_waiting()
        publisher.publish_waiting()


if __name__ == "__main__":
    main()
