"""A tiny Qwen2, its tokenizer and its data, all made in code: nothing is downloaded."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

PAD, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
TOOL_MARKERS = ["<tool_call>", "</tool_call>"]
ASSISTANT = f"{START}assistant\n"
CHAT_TEMPLATE = (
    "{%- if tools %}<|im_start|>system\n# Tools\n"
    "{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}<|im_end|>\n{%- endif %}"
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def make(directory: Path) -> Path:
    """Writes what a recipe reads: `model/` with the tokenizer, and the data of both loops. Returns the directory."""
    directory.mkdir(parents=True, exist_ok=True)
    chosen = tokenizer()
    chosen.save_pretrained(directory / "model")
    _model(chosen).save_pretrained(directory / "model")
    prompts = [_prompt(number) for number in range(64)]
    lessons = [_lesson(number) for number in range(64)]
    for name, rows in (("rl", prompts), ("rl_val", prompts[:4]), ("sft", lessons), ("sft_val", lessons[:8])):
        _parquet(rows, directory / f"{name}.parquet")
    return directory


def tokenizer() -> PreTrainedTokenizerFast:
    """One token for each byte, and the markers of chat and of tool calls."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = [PAD, START, END, *TOOL_MARKERS, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    bytewise = Tokenizer(models.BPE({token: number for number, token in enumerate(alphabet)}, merges=[]))
    bytewise.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    bytewise.decoder = decoders.ByteLevel()
    chosen = PreTrainedTokenizerFast(
        tokenizer_object=bytewise,
        eos_token=END,
        pad_token=PAD,
        additional_special_tokens=[START],
        chat_template=CHAT_TEMPLATE,
    )
    chosen.add_tokens(TOOL_MARKERS)
    return chosen


def _model(tokenizer: PreTrainedTokenizerFast) -> Any:
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(0)
    return Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=512,
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=2048,
            tie_word_embeddings=False,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
            bos_token_id=None,
        )
    )


def _prompt(number: int) -> dict[str, Any]:
    return {
        "data_source": "verl_cpu",
        "ability": "say",
        "prompt": [{"role": "user", "content": f"say {number}"}],
        "reward_model": {"style": "rule", "ground_truth": str(number % 10)},
        "extra_info": {"index": number, "split": "train"},
    }


def _lesson(number: int) -> dict[str, Any]:
    return {
        "messages": [
            {"role": "user", "content": f"say {number}"},
            {"role": "assistant", "content": f"{number} " * (1 + number % 3)},
        ]
    }


def _parquet(rows: list[dict[str, Any]], path: Path) -> None:
    import pyarrow as arrow
    import pyarrow.parquet

    arrow.parquet.write_table(arrow.Table.from_pylist(rows), path)
