"""Tiny models and data for tests that train for real: the demo's own, and what only a test needs."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

from akka_otel_callbacks.demo.tiny import model, prompts, save, sentence, texts, tokenizer

__all__ = ["model", "prompts", "save", "save_with_tools", "sentence", "texts", "tokenizer"]

TOOL_TOKENS = ["<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"]


def save_with_tools(directory: Path, **model_options: Any) -> str:
    """As `save`, with the Qwen3 chat template that TRL 1.x can parse tool calls of; its markers are tokens."""
    template = (files("trl") / "chat_templates" / "qwen3.jinja").read_text()
    chosen = tokenizer(template)
    chosen.add_tokens(TOOL_TOKENS)
    chosen.save_pretrained(directory)
    model(chosen, **model_options).save_pretrained(directory)
    return str(directory)
