"""Every recipe of `examples/verl_cpu`, as shipped, is a configuration that verl takes. `e2e/` runs them."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from akka_otel_callbacks.verl.config import asks, get
from akka_otel_callbacks.verl.settings import devices, method

hydra = pytest.importorskip("hydra", reason="comes with verl")
omegaconf = pytest.importorskip("omegaconf", reason="comes with verl")
recipes = pytest.importorskip("verl_cpu.recipes", reason="it needs examples/verl_cpu")

CONFIGS = {
    "verl.trainer.main_ppo": ("trainer", "ppo_trainer"),
    "verl.experimental.one_step_off_policy.main_ppo": (
        "experimental/one_step_off_policy",
        "one_step_off_ppo_trainer",
    ),
    "verl.experimental.fully_async_policy.fully_async_main": (
        "experimental/fully_async_policy",
        "fully_async_ppo_trainer",
    ),
    "verl.trainer.sft_trainer": ("trainer", "sft_trainer_engine"),
    "verl.trainer.sft_trainer_ray": ("trainer", "sft_trainer_engine"),
}


def composed(name: str, directory: Path) -> Any:
    """verl's whole configuration as the recipe's program would have it."""
    recipe = recipes.RECIPES[name]
    chosen = recipes.settings(recipe, directory, directory, workers=2, steps=3, loggers=["console", "akka_otel"])
    folder, config = CONFIGS[recipe.program]
    (verl,) = importlib.util.find_spec("verl").submodule_search_locations
    with hydra.initialize_config_dir(f"{verl}/{folder}/config", version_base=None):
        return omegaconf.OmegaConf.to_container(hydra.compose(config, recipes.overrides(chosen)))


@pytest.mark.parametrize("name", recipes.RECIPES)
def test_verl_takes_the_configuration(name: str, tmp_path: Path) -> None:
    config = composed(name, tmp_path)
    assert asks(config)
    assert method(config) == {"ppo": "PPO", "sft": "SFT", "sft-ray": "SFT"}.get(name, "GRPO")
    assert devices(config) is None
    assert get(config, "trainer.default_local_dir") == str(tmp_path / "checkpoints")

    quiet = recipes.RECIPES[name].environ.get("VERL_LOGGING_LEVEL") == "WARN"
    assert quiet is (get(config, "trainer.v1.trainer_mode") == "separate_async")  # which ends at a line of level INFO
