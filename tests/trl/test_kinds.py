"""Kind and method of TRL's own trainers, of hosts' copies and extensions of them, and of what is none of TRL's."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from typing import Any

import pytest
import trl
from transformers import Seq2SeqTrainer, Trainer

from akka_otel_callbacks.trl.kinds import kind_of, method_of

_BaseTrainer = trl.SFTTrainer.__mro__[1]


def bare(kind: type) -> Any:
    """An instance that nothing was done to."""
    return object.__new__(kind)


def own_trainers() -> list[type]:
    """Every trainer class that this TRL has."""
    found: dict[str, type] = {}
    for package in ("trl.trainer", "trl.experimental"):
        root = importlib.import_module(package)
        for module in pkgutil.walk_packages(root.__path__, f"{package}."):
            if not module.name.endswith("_trainer"):
                continue
            try:
                loaded = importlib.import_module(module.name)
            except ImportError:  # wants a package that is not here
                continue
            for name, kind in inspect.getmembers(loaded, inspect.isclass):
                if (
                    issubclass(kind, Trainer)
                    and kind.__module__ == module.name
                    and name not in ("BaseTrainer", "_BaseTrainer")
                ):
                    found[name] = kind
    return list(found.values())


OWN = own_trainers()
REWARDED = set("GRPO RLOO OnlineDPO NashMD XPO PPO AsyncGRPO SDPO A2PO GMPO GFPO GRPOWithReplayBuffer".split())
"""TRL's methods that generate and are rewarded, from its documentation."""


@pytest.mark.parametrize("kind", OWN, ids=lambda kind: kind.__name__)
def test_trl_s_own(kind: type) -> None:
    name = kind.__name__.removesuffix("Trainer")
    assert method_of(bare(kind)) == name
    supervised = issubclass(kind, trl.SFTTrainer)
    assert kind_of(bare(kind)) == ("rl" if name in REWARDED else "sft" if supervised else None)


@pytest.mark.parametrize("kind", [kind for kind in OWN if vars(kind).get("_tag_names")], ids=lambda kind: kind.__name__)
def test_a_compiled_copy_is_what_it_is_a_copy_of(kind: type) -> None:
    """As Unsloth makes them: the text of the class under another name, with the same base."""
    base = kind.__mro__[1]
    if base in OWN:
        pytest.skip("not compiled by itself")
    text = {name: value for name, value in vars(kind).items() if name not in ("__dict__", "__weakref__")}
    copy = type(f"_Unsloth{kind.__name__}", (base,), {**text, "__module__": "UnslothTrainers"})
    host = type(f"Unsloth{kind.__name__}", (copy,), {"__module__": "UnslothTrainers"})
    assert kind_of(bare(host)) == kind_of(bare(kind))
    assert method_of(bare(host)) == method_of(bare(kind))


def derived(name: str, *bases: type, **attributes: Any) -> type:
    return type(name, bases, {"__module__": "host", **attributes})


class Mixin:
    pass


@pytest.mark.parametrize(
    ("host", "kind", "method"),
    [
        (derived("AxolotlGRPOTrainer", Mixin, trl.GRPOTrainer, _tag_names=["trl", "grpo", "axolotl"]), "rl", "GRPO"),
        (derived("AxolotlDPOTrainer", Mixin, trl.DPOTrainer, tag_names=["axolotl", "dpo"]), None, "DPO"),
        (derived("AxolotlTrainer", Mixin, Trainer, tag_names=["axolotl"]), None, None),
        (derived("CustomDPOTrainer", trl.DPOTrainer), None, "DPO"),
        (derived("CustomSeq2SeqTrainer", Seq2SeqTrainer), None, None),
        (derived("GRPOTrainer", Mixin, trl.GRPOTrainer), "rl", "GRPO"),
        (derived("Seq2SeqTrainer", Mixin, Seq2SeqTrainer), None, None),
        (derived("MyTrainer", trl.SFTTrainer), "sft", "SFT"),
        (derived("MyTrainer", trl.SFTTrainer, _tag_names=["trl", "sft", "mine"]), "sft", "SFT"),
        (derived("MyTrainer", trl.GRPOTrainer, _tag_names=["trl", "my-grpo"]), "rl", "GRPO"),
        (derived("MyTrainer", trl.GRPOTrainer, _tag_names="grpo"), "rl", "GRPO"),
        (derived("MyTrainer", trl.GRPOTrainer, _tag_names=[None, 7, "unsloth"]), "rl", "GRPO"),
        (derived("Qwen2VLGRPOTrainer", Trainer), "rl", "GRPO"),
        (derived("RLTrainer", Trainer, _calculate_rewards=lambda self: None), "rl", None),
        (derived("RLTrainer", Trainer, reward_funcs=[len]), "rl", None),
        (derived("RLTrainer", trl.SFTTrainer, reward_funcs=[len]), "rl", "SFT"),
        (derived("_Copy", _BaseTrainer, _tag_names=["trl", "online-dpo"]), "rl", "OnlineDPO"),
        (derived("_Copy", _BaseTrainer, _tag_names=["trl", "reward-trainer"]), None, "Reward"),
        (derived("_Copy", _BaseTrainer), None, None),
        (Trainer, None, None),
    ],
)
def test_hosts(host: type, kind: str | None, method: str | None) -> None:
    assert (kind_of(bare(host)), method_of(bare(host))) == (kind, method)


def test_nothing_is_no_trainer() -> None:
    assert (kind_of(None), method_of(None)) == (None, None)
