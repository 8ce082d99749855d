"""Fetches the newest published snapshot of a run into a folder, and says where it is.

python examples/checkpoints/restore.py --to /tmp/published --run-id published-run --into /tmp/restored
"""

from __future__ import annotations

import argparse
from pathlib import Path

from checkpoint_publisher.catalog import Catalog
from checkpoint_publisher.options import add_options, store_of
from checkpoint_publisher.restore import restore

from akka_otel_callbacks import checkpoints
from akka_otel_callbacks.checkpoints import RestoreMode


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser)
    parser.add_argument("--run-id", default="published-run")
    parser.add_argument("--into", type=Path, required=True)
    parser.add_argument("--branch", metavar="RUN_ID", help="restore for a new run of this ID")
    chosen = parser.parse_args()
    catalog = Catalog(chosen.work / "catalog.db")
    snapshot_id = catalog.latest(chosen.run_id)
    if snapshot_id is None:
        parser.exit(1, f"no published snapshot of {chosen.run_id}\n")
    with checkpoints.reporting(run_id=chosen.branch or chosen.run_id):
        mode = RestoreMode.BRANCH if chosen.branch else RestoreMode.RESUME
        print(restore(snapshot_id, chosen.into, store_of(chosen), catalog, restore_mode=mode))


if __name__ == "__main__":
    main()
