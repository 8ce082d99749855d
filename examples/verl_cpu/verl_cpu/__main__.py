"""`verl-cpu`: trains one of the recipes."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from verl_cpu.recipes import RECIPES
from verl_cpu.train import train


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="verl-cpu",
        description="Trains verl for real on a machine without a GPU.",
        epilog="recipes:\n" + "\n".join(f"  {name:16}{recipe.about}" for name, recipe in RECIPES.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("recipe", choices=RECIPES, metavar="recipe", help="see below")
    parser.add_argument("override", nargs="*", help="further settings of verl, as Hydra overrides")
    parser.add_argument("--directory", type=Path, default=Path("verl-cpu"), help="takes model, data and outputs")
    parser.add_argument("--workers", type=int, default=1, help="worker processes, each with a logical device")
    parser.add_argument("--steps", type=int, default=3, help="training steps")
    parser.add_argument("--logger", action="append", help="a tracking backend of verl, beside the console")
    given = parser.parse_args()
    return train(
        given.recipe,
        given.directory,
        workers=given.workers,
        steps=given.steps,
        loggers=["console", *(given.logger or [])],
        extra=given.override,
    )


if __name__ == "__main__":
    sys.exit(main())
