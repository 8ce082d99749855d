"""Writes what is generated from the registry: `python -m tools.generate`, or with `--check` only compares."""

from __future__ import annotations

import argparse
import difflib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import jinja2

from tools.model import Attribute, Enumeration, Metric, constant, short
from tools.prometheus import prometheus_label, prometheus_name
from tools.registry import PYTHON_TYPES, Registry, RegistryError, load

ROOT = Path(__file__).resolve().parent.parent
LINES_SHOWN = 20


def class_name(name: str) -> str:
    """The Python class that holds an attribute's well-known values: `sft.step.phase` is `SftStepPhase`."""
    return "".join(part.capitalize() for part in short(name).replace(".", "_").split("_"))


def members(attribute: Attribute) -> dict[str, str]:
    """The constants of an attribute's well-known values, by constant."""
    if isinstance(attribute.type, Enumeration):
        return {member.id.upper(): member.value for member in attribute.type.members}
    return {value.upper().replace("-", "_"): value for value in attribute.values}


def python_type(attribute: Attribute) -> str:
    return "str" if isinstance(attribute.type, Enumeration) else PYTHON_TYPES[attribute.type].__name__


def _template(name: str, **values: object) -> str:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(ROOT / "tools" / "templates"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(
        {
            "constant": constant,
            "short": short,
            "class_name": class_name,
            "members": members,
            "python_type": python_type,
            "repr": repr,
            "bound": lambda bound: f"{bound:.15g}",
            "prometheus": prometheus_name,
            "label": prometheus_label,
        }
    )
    environment.tests["enumeration"] = lambda attribute: isinstance(attribute.type, Enumeration)
    return environment.get_template(name).render(**values)


def names(registry: Registry) -> str:
    """`common/names.py`."""

    def emitted(emitter: str) -> list[Metric]:
        return [metric for metric in registry.metrics if metric.extras.emitter == emitter]

    source = _template("names.py.j2", registry=registry, job=emitted("job"), service=emitted("service"))
    return _ruff(source)


def _ruff(source: str) -> str:
    command = [sys.executable, "-m", "ruff", "format", "--stdin-filename", str(ROOT / "src" / "names.py"), "-"]
    return subprocess.run(command, input=source, capture_output=True, text=True, check=True, cwd=ROOT).stdout


OUTPUTS: dict[str, Callable[[Registry], str]] = {
    "src/akka_otel_callbacks/common/names.py": names,
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
    except RegistryError as error:
        print(error, file=sys.stderr)
        return 1
    stale = 0
    for path, write in OUTPUTS.items():
        target, expected = ROOT / path, write(registry)
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
