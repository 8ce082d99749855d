"""The GPU's script where there is no GPU: its own model and count, small."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="the script trains a torch model")

from gpu_tests import mfu  # noqa: E402

SMALL = mfu.Sizes(hidden=32, intermediate=48, layers=2, heads=4, groups=2, vocabulary=64, rows=2, length=8)


def test_the_scripts_model_costs_what_is_counted_by_hand_and_measured(capsys: pytest.CaptureFixture[str]) -> None:
    tokens = torch.randint(SMALL.vocabulary, (SMALL.rows, SMALL.length))
    mfu.check_count(mfu.decoder(SMALL), tokens, SMALL)
    assert f"{SMALL.matmul_parameters:,} matmul parameters" in capsys.readouterr().out


def test_the_script_trains_a_model_of_half_a_billion_parameters() -> None:
    assert 0.45e9 < mfu.Sizes().matmul_parameters < 0.55e9


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device: the script runs instead")
def test_without_a_gpu_the_script_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert mfu.main() == 0
    assert "SKIPPED" in capsys.readouterr().out
