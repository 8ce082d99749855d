"""Values of the registry's enums come from the generated classes, so that a change of the registry reaches the code."""

from __future__ import annotations

import ast

from akka_otel_callbacks.common.vocabulary import names
from tests.laws.source import MODULES, NAMES, Module

VALUES = {
    value: f"{name}.{key}"
    for name, made in vars(names).items()
    if isinstance(made, type) and made.__module__ == names.__name__
    for key, value in vars(made).items()
    if key.isupper()
}
"""By value, the constant that stands for it."""

ANYWHERE = {"trl", "verl"}
"""Packages that are looked for."""
OTHERWISE = {
    "cli.data": {"step", "values", "failed"},  # headings
    "cli.demo": {"reward", "loss"},  # parts of names
    "cli.replay": {"step"},  # a word of a sentence
    "cli.table": {"latest"},  # a heading
    "cli.view": {"export"},  # a word of a sentence
    "common.gpu.readings": {"latest"},  # how samples become one figure
    "common.gpu.xid_codes": {"informational"},  # a word of a log line
    "common.graders.scoring": {"failed"},  # an attribute of a scoring
    "common.export.acceptance": {"rejected"},  # how a delivery ended
    "graders": {"failure"},  # a module
    "reading.attributes": {"values"},  # a field of OTLP
    "reading.ending": {"failed"},  # a word of a sentence
    "replay.console_lines": {"actor"},  # one of Ray's
    "replay.run": {"trainer_state"},  # a part of a file's name
    "replay.trainer_state": {"step"},  # transformers' own word
    "replay.trl_steps": {"reward"},  # TRL's log key
    "replay.verl_console": {"actor_rollout_ref"},  # verl's configuration
    "replay.verl_file": {"step"},  # verl's own word
    "replay.verl_settings": {"trainer"},  # verl's configuration
    "report.drawing": {"other"},  # what parts leave of a whole
    "report.hardware_panels": {"gpu", "memory"},  # names of panels, as the next three
    "report.page": {"values"},
    "report.rl_panels": {"reward", "truncated"},
    "report.rules": {"gpu", "reward"},
    "trl.running": {"train"},  # a method
    "trl.callback": {"optimizer"},  # an argument of transformers' events
    "trl.loop": {"train", "optimizer"},  # TRL's buffers and attributes
    "trl.settings": {"adapter"},
    "trl.vocabulary": {"rejected", "reward", "eval"},  # parts of TRL's log keys, and a field of a step
    "verl.driver.saves": {"save_checkpoint", "optimizer"},  # verl's method, and a part of verl's checkpoints
    "verl.driver.vocabulary": {"reward"},  # a field of a step
    "verl.rollout.stopping": {"failure"},  # verl's own word
    "verl.driver.reward_model": {"train"},  # verl's own word
    "verl.settings": {"actor_rollout_ref", "rollout", "trainer"},  # verl's configuration
    "verl.worker.clip_ratio": {"old_log_prob"},  # an argument of verl's losses
}
"""Words that mean something else there, and are an enum's value by chance."""


def exported(module: Module) -> set[int]:
    """The words of `__all__`, which are names of functions and classes."""
    lists = [
        node.value
        for node in module.tree.body
        if isinstance(node, ast.Assign) and any(ast.unparse(target) == "__all__" for target in node.targets)
    ]
    return {id(node) for each in lists for node in ast.walk(each)}


def test_no_value_of_an_enum_is_typed_in() -> None:
    allowed = {name: ANYWHERE | OTHERWISE.get(name, set()) for name in MODULES}
    found = [
        f"{module.path.name}:{word.lineno}: {word.value!r} is names.{VALUES[word.value]}; where it means something "
        f"else, say so in {__name__}.OTHERWISE"
        for module in MODULES.values()
        if module.name != NAMES
        for word in module.words
        if word.value in VALUES.keys() - allowed[module.name] and id(word) not in exported(module)
    ]
    assert found == []


def test_every_exception_is_needed() -> None:
    there = {name: {word.value for word in module.words} for name, module in MODULES.items()}
    assert [name for name, words in OTHERWISE.items() if not words <= there.get(name, set())] == []
