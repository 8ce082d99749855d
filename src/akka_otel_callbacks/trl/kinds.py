"""What kind of trainer a trainer is, and by which method it trains.

Hosts copy, rename and extend TRL's trainers, so that the name of a class says little. TRL's own tags survive that.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

RL, SFT = "rl", "sft"
RL_TAGS = frozenset("grpo rloo ppo online-dpo nash-md xpo gfpo gmpo async-grpo sdpo a2po".split())
"""TRL's tags of trainers that generate and are rewarded."""
RL_ABILITIES = ("_calculate_rewards", "reward_funcs")
RL_NAMES, SFT_NAMES = ("GRPOTrainer", "RLOOTrainer", "PPOTrainer"), ("SFTTrainer",)
NO_METHODS = frozenset("trl unsloth axolotl swift ms-swift llama-factory llamafactory".split())
"""Tags of libraries and hosts."""
WORDS = frozenset("async nash online reward server distillation".split())
"""What TRL writes as a word where it names a method; everything else is letters."""


def kind_of(trainer: object) -> str | None:
    """`rl`, `sft`, or None for a trainer of another kind. No engine is imported for the question."""
    names = [base.__name__ for base in type(trainer).__mro__]
    tags = set(_tags(type(trainer)))
    if tags & RL_TAGS or any(name.endswith(RL_NAMES) for name in names) or _is_rewarded(trainer):
        return RL
    return SFT if SFT in tags or any(name.endswith(SFT_NAMES) for name in names) else None


def method_of(trainer: object) -> str | None:
    """GRPO, RLOO, SFT, DPO …: what TRL calls the nearest class that it knows; None where it knows none, as for a plain
    `Trainer` and what hosts derive from it."""
    return next((found for base in type(trainer).__mro__ if (found := _method(base))), None)


def _method(base: type) -> str | None:
    name = base.__name__
    if base.__module__.startswith("trl.") and name.endswith("Trainer") and not name.startswith("_"):
        return name.removesuffix("Trainer")
    if tag := next(_own_tags(base), None):
        return "".join(word.title() if word in WORDS else word.upper() for word in tag.split("-"))
    known = next((known for known in RL_NAMES + SFT_NAMES if name.endswith(known)), None)
    return known.removesuffix("Trainer") if known else None


def _is_rewarded(trainer: object) -> bool:
    return any(getattr(trainer, name, None) is not None for name in RL_ABILITIES)


def _tags(trainer: type) -> Iterator[str]:
    return (tag for base in trainer.__mro__ for tag in _own_tags(base))


def _own_tags(base: type) -> Iterator[str]:
    """The methods among the tags that a class itself gives to its models."""
    tags: Any = vars(base).get("_tag_names")
    if isinstance(tags, (list, tuple)):
        for tag in tags:
            method = str(tag).lower().removesuffix("-trainer")
            if method and method not in NO_METHODS:
                yield method
