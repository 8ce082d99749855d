"""The models that the trainings of these tests start from."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.trl import trainings


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A model that ends some of its completions early, and its tokenizer, on disk."""
    return trainings.save_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="session", autouse=True)
def _in_a_scratch_folder(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Trainers write checkpoints and model cards; none of it belongs into the working tree."""
    trainings.OUTPUT = Path(tmp_path_factory.mktemp("output"))
