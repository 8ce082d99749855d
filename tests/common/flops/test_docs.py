"""The tables of docs/efficiency.md are those that the code gives."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the tiny models are those of transformers")
transformers = pytest.importorskip("transformers", reason="the tiny models are those of transformers")

from benchmarks import flops_error  # noqa: E402
from benchmarks.config_estimate.estimate import architecture  # noqa: E402
from tests.common.flops import models as flops_models  # noqa: E402

ROWS = [
    [cell.strip() for cell in line.strip("|\n ").split("|")]
    for line in (Path(__file__).parents[3] / "docs" / "efficiency.md").read_text().splitlines()
    if line.startswith("|")
]
ARCHITECTURES = {row[0]: row for row in ROWS if len(row) == 8}


def test_every_known_device_stands_in_the_documentation_and_no_other() -> None:
    documented = [f"| {' | '.join(row)} |" for row in ROWS if len(row) == 4 and row[2] in ("bf16", "fp16")]
    assert documented == flops_error.peak_rows()


def test_every_measured_architecture_stands_in_the_documentation() -> None:
    measured = {*flops_models.TEXT_MODELS, *flops_models.MULTIMODAL_MODELS}
    assert measured == set(ARCHITECTURES) - {"architecture", "---"}


@pytest.mark.parametrize("model_type", [*flops_models.TEXT_MODELS, *flops_models.MULTIMODAL_MODELS])
def test_a_documented_architecture_has_the_documented_cost(model_type: str) -> None:
    if model_type not in transformers.CONFIG_MAPPING:
        pytest.skip(f"this version of transformers has no {model_type}")
    found = architecture(flops_models.tiny_config(model_type))
    assert found is not None
    linear = 2 * found.parameters.total * flops_models.TOKENS
    attention = found.attention_flops([flops_models.LENGTH] * flops_models.BATCH)
    figures = [int(cell.replace(",", "")) for cell in ARCHITECTURES[model_type][1:]]
    assert figures == [found.parameters.total, linear, linear, 0, attention, attention, 0]
