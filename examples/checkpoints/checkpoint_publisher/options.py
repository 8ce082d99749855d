"""Where the programs of this example work and publish to."""

from __future__ import annotations

import argparse
from pathlib import Path

from checkpoint_publisher.store import Store


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--to", required=True, help="a folder, or any URL of fsspec's such as s3://bucket/checkpoints")
    parser.add_argument("--endpoint-url", help="of an object store that is not Amazon's")
    parser.add_argument("--work", type=Path, default=Path("work"), help="staging, catalog and native checkpoints")


def options_of(chosen: argparse.Namespace) -> list[str]:
    """The same options for another of the programs."""
    endpoint = ["--endpoint-url", chosen.endpoint_url] if chosen.endpoint_url else []
    return ["--to", chosen.to, "--work", str(chosen.work), *endpoint]


def store_of(chosen: argparse.Namespace) -> Store:
    return Store(chosen.to, **({"endpoint_url": chosen.endpoint_url} if chosen.endpoint_url else {}))
