"""The notebooks run as they stand, end with the page, and send the same figures to a collector where one is named."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("nbclient", reason="the notebooks are run with nbclient")

import nbformat

from akka_otel_callbacks.common.vocabulary import names
from tests.examples.notebooks import NOTEBOOKS, executed
from tests.support.otlp_sink import otlp_sink

pytest.importorskip("trl", reason="they train with TRL")

BOTH = {"OTEL_METRICS_EXPORTER": "otlp,file", "OTEL_TRACES_EXPORTER": "otlp,file"}
"""What the notebooks say of a collector and files."""
QUIET = {"HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}


@pytest.mark.parametrize(
    ("notebook", "counted", "shown"),
    [
        ("trl_grpo.ipynb", {names.RL_STEP_COUNT: {12}}, ["brevity", "real_words"]),
        ("trl_sft_lora.ipynb", {names.SFT_STEP_COUNT: {12}}, [names.ATTR_RUN_LORA_RANK.name.rpartition(".")[2]]),
        ("compare_runs.ipynb", {names.SFT_STEP_COUNT: {10}}, ["notebook-slow", "notebook-fast"]),
    ],
)
def test_a_notebook(tmp_path: Path, notebook: str, counted: dict, shown: list[str]) -> None:
    with otlp_sink() as sink:
        page = executed(notebook, tmp_path, {**QUIET, **BOTH, "OTEL_EXPORTER_OTLP_ENDPOINT": sink.http})
        for metric, totals in counted.items():
            runs = {point.resource[names.ATTR_RUN_ID.name] for point in sink.series(metric)}
            last = {
                [p.value for p in sink.series(metric) if p.resource[names.ATTR_RUN_ID.name] == run][-1] for run in runs
            }
            assert last == totals
    assert page.startswith("<!doctype html>")
    assert [word for word in [*shown, '"value":"finished"'] if word not in page] == []


@pytest.mark.parametrize("path", sorted(NOTEBOOKS.glob("*.ipynb")), ids=lambda path: path.stem)
def test_a_notebook_is_kept_without_results_and_ends_with_the_page(path: Path) -> None:
    cells = nbformat.read(path, as_version=4).cells
    assert [cell for cell in cells if cell.get("outputs") or cell.get("execution_count")] == []
    assert "report(" in cells[-1].source
    [said] = [cell.source for cell in cells if "OTEL_EXPORTER_OTLP_ENDPOINT" in cell.source]
    assert [name for name, value in BOTH.items() if f'os.environ["{name}"] = "{value}"' not in said] == []
