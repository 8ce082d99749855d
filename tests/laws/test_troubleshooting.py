"""The page of troubleshooting: it explains whatever `akka-otel doctor` can say, and quotes it as it is said."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.laws.source import MODULES, ROOT

PAGE = ROOT / "docs" / "troubleshooting.md"
SAYS = {"Answer", "Finding", "_warn", "append", "extend"}
"""What is called with something that doctor shows."""
RETURNS = {"refusal", "why_not_written", "_supported", "why_none", "_selection", "_choice"}
SPEAKERS = [
    "cli.doctor",
    "cli.gpus",
    "cli.probe",
    "cli.verl_checks",
    "common.export.detail",
    "common.export.otlp.settings",
    "common.export.selection",
    *(name for name in MODULES if name.startswith("common.export.targets.")),
]
GAP = "…"
"""Stands where a value does, in a text of the source as on the page."""


def quoted() -> list[str]:
    """The texts in the first column of the tables, but for those that others say."""
    rows, ours = [], False
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("| It says"):
            ours = True
        elif not line.startswith("|"):
            ours = False
        elif ours:
            rows += re.findall(r"`([^`]+)`", line.split("|")[1])
    return rows


def fragments(text: str) -> list[str]:
    return [part.strip() for part in text.split(GAP) if len(part.strip()) > 3]


def said() -> Iterator[str]:
    """What doctor can say, with a gap for each value."""
    for name in SPEAKERS:
        for node in ast.walk(MODULES[name].tree):
            if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) in SAYS:
                yield from _texts([*node.args, *(keyword.value for keyword in node.keywords)])
            elif isinstance(node, ast.FunctionDef) and node.name in RETURNS:
                yield from _texts([one.value for one in ast.walk(node) if isinstance(one, ast.Return) and one.value])
    for node in MODULES["common.gpu.nvml"].tree.body:
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "ADVICE":
            yield from _texts([node.value])


def _texts(nodes: list[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            yield "".join(part.value if isinstance(part, ast.Constant) else GAP for part in node.values)
        elif isinstance(node, ast.Constant):
            yield from (node.value,) if isinstance(node.value, str) else ()
        else:
            yield from _texts([*ast.iter_child_nodes(node)])


SENTENCES = sorted({text for text in said() if " " in text.strip(f"{GAP} ") and len(text) > 12})
EXPLAINED = [part for text in quoted() for part in fragments(text)]
WORDS = "\n".join(str(word.value) for module in MODULES.values() for word in module.words)
UNEXPLAINED = (
    "OTEL_EXPORTER_OTLP_",  # a name of a variable
    "OTEL_PYTHON_EXPORTER_OTLP_",
    "this GPU does not support some figures",  # said in a training's log, of one figure
    "driver or nvidia-ml-py is too old",
    "NVML was shut down by another part",
    "GPU figures are off, as asked",
    "there now: ",  # a list of addresses
)


@pytest.mark.parametrize("text", quoted())
def test_what_the_page_quotes_is_said(text: str) -> None:
    for part in fragments(text):
        assert part in WORDS, f"nothing says {part!r}"


@pytest.mark.parametrize("sentence", SENTENCES)
def test_what_doctor_says_is_explained(sentence: str) -> None:
    if not sentence.startswith(UNEXPLAINED):
        assert any(part in sentence for part in EXPLAINED), f"the page does not explain {sentence!r}"


def test_the_sentences_are_found() -> None:
    assert len(quoted()) > 35
    assert {"can be written", "answers, and accepted an empty export"} <= {*SENTENCES}
