"""Writes what is generated from the registry: `python -m tools.generate`, or with `--check` only compares."""

from __future__ import annotations

import argparse
import difflib
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import jinja2

from tools import names, reference
from tools.deploy import deployment
from tools.deploy.form import FormError
from tools.model import PREFIX
from tools.registry import Registry, RegistryError, load

ROOT = Path(__file__).resolve().parent.parent
TEMPLATES = Path(__file__).parent / "templates"
NAMES = "src/akka_otel_callbacks/common/vocabulary/names.py"
REFERENCE = "docs/reference.md"
PROMOTED = "deploy/prometheus/otlp.yml"
COLLECTOR = "deploy/collector/collector.yaml"
LINES_SHOWN = 20


def write_names(registry: Registry) -> str:
    """The text of `common/names.py`."""
    return _formatted(_environment(names.FILTERS).get_template("names.py.j2").render(registry=registry, prefix=PREFIX))


def write_reference(registry: Registry) -> str:
    """The text of `docs/reference.md`."""
    environment = _environment(reference.filters(registry))
    text = environment.get_template("reference.md.j2").render(
        registry=registry, prefix=PREFIX, areas=reference.areas(registry)
    )
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def write_plain(template: str, registry: Registry) -> str:
    """The text of a file whose template needs the registry only."""
    return _environment({}).get_template(template).render(registry=registry)


def _environment(filters: Mapping[str, Callable[..., object]]) -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(filters)
    return environment


def _formatted(source: str) -> str:
    """Python source as `ruff format` writes it, under the project's configuration."""
    command = [sys.executable, "-m", "ruff", "format", "--stdin-filename", str(ROOT / NAMES), "-"]
    return subprocess.run(command, input=source, capture_output=True, text=True, check=True).stdout


OUTPUTS: dict[str, Callable[[Registry], str]] = {
    NAMES: write_names,
    REFERENCE: write_reference,
    PROMOTED: partial(write_plain, "otlp.yml.j2"),
    COLLECTOR: partial(write_plain, "collector.yaml.j2"),
    **deployment.OUTPUTS,
}


def difference(path: str, current: str, expected: str) -> str:
    """What the generator would change in a file, cut to what a person reads."""
    lines = list(difflib.unified_diff(current.splitlines(), expected.splitlines(), path, "generated", n=0, lineterm=""))
    rest = len(lines) - LINES_SHOWN
    return "\n".join(lines[:LINES_SHOWN] + ([f"… and {rest} lines more"] if rest > 0 else []))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.generate", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a file is not current")
    check = parser.parse_args(arguments).check
    try:
        registry = load(ROOT / "registry")
        texts = {path: write(registry) for path, write in OUTPUTS.items()}
    except (RegistryError, FormError) as error:
        print(error, file=sys.stderr)
        return 1
    stale = 0
    for path, expected in texts.items():
        target = ROOT / path
        current = target.read_text(encoding="utf-8") if target.exists() else ""
        if current == expected:
            continue
        stale += 1
        if check:
            print(f"{path} is not what the registry says; run `make generate`\n{difference(path, current, expected)}")
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(expected, encoding="utf-8")
            print(f"wrote {path}")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
