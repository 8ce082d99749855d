"""What kind of trainer a trainer is, and by which method it trains.

Hosts copy, rename and extend TRL's trainers, so the name of a class says little. TRL's own tags survive that.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

RL, SFT = "rl", "sft"
RL_TAGS = frozenset("grpo rloo ppo online-dpo nash-md xpo gfpo gmpo papo async-grpo sdpo a2po".split())
"""TRL's tags of trainers that generate and are rewarded."""
TAGS = RL_TAGS | frozenset(
    """
    sft dpo kto bco cpo orpo tpo prm reward reward-trainer gkd gold minillm sdft iw-opd
    distillation server-distillation async-distillation
    """.split()
)
"""TRL's tags of methods. Any other tag of a class names a library, a host or a project."""
WORDS = frozenset("async nash online reward server distillation".split())
"""Parts of a method's name that TRL writes as words. The others are initials."""
RL_ABILITIES = ("_calculate_rewards", "reward_funcs")
RL_NAMES, SFT_NAMES = ("GRPOTrainer", "RLOOTrainer", "PPOTrainer"), ("SFTTrainer",)


def kind_of(trainer: object) -> str | None:
    """`rl`, `sft`, or None for a trainer of another kind. No engine is imported for the question."""
    bases = type(trainer).__mro__
    tags = {tag for base in bases for tag in _own_tags(base)}
    if tags & RL_TAGS or any(base.__name__.endswith(RL_NAMES) for base in bases) or _is_rewarded(trainer):
        return RL
    return SFT if SFT in tags or any(base.__name__.endswith(SFT_NAMES) for base in bases) else None


def method_of(trainer: object) -> str | None:
    """GRPO, RLOO, SFT, DPO and so on: TRL's name for the nearest base class that it knows. None if it knows none, as
    with a plain `Trainer` and what hosts derive from it."""
    bases = type(trainer).__mro__
    known = (found for base in bases if (found := _method(base)))
    similar = (name for base in bases for name in RL_NAMES + SFT_NAMES if base.__name__.endswith(name))
    return next(known, None) or next((name.removesuffix("Trainer") for name in similar), None)


def _method(base: type) -> str | None:
    name = base.__name__.removesuffix("Trainer")
    if base.__module__.startswith("trl.") and name != base.__name__ and name not in ("Base", "_Base"):
        return name
    tag = next(_own_tags(base), "").removesuffix("-trainer")
    return "".join(word.title() if word in WORDS else word.upper() for word in tag.split("-")) or None


def _is_rewarded(trainer: object) -> bool:
    return any(getattr(trainer, name, None) is not None for name in RL_ABILITIES)


def _own_tags(base: type) -> Iterator[str]:
    """The methods among the tags that a class itself gives to its models."""
    tags: Any = vars(base).get("_tag_names")
    if isinstance(tags, (list, tuple)):
        yield from (tag for tag in tags if isinstance(tag, str) and tag in TAGS)
