"""A real but tiny Qwen3, its tokenizer and its data, all built in code: nothing is downloaded."""

from __future__ import annotations

import random
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

PAD, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
TEXT = (
    "a am an and are as at be but by do for go he hill home i if in is it lake me my no of on or our river see sky so "
    "sun the then to tree up walk water we wind with yes you"
)
WORDS = TEXT.split()
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

TextForm = Literal["text", "messages", "prompt-completion"]


def tokenizer(chat_template: str = CHAT_TEMPLATE) -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer of about 340 tokens, trained on `TEXT`; it can encode any text."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=[PAD, START, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator([" " + TEXT] * 2, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        eos_token=END,
        pad_token=PAD,
        chat_template=chat_template,
        model_input_names=["input_ids", "attention_mask"],  # no token_type_ids: older TRL hands them to generate()
    )


def model(tokenizer: PreTrainedTokenizerFast, *, layers: int = 2, hidden: int = 64, seed: int = 0) -> Qwen3ForCausalLM:
    """A Qwen3 with random weights, the same for the same seed."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(seed)
    return Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=len(tokenizer),
            hidden_size=hidden,
            intermediate_size=2 * hidden,
            num_hidden_layers=layers,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=hidden // 4,
            max_position_embeddings=2048,
            tie_word_embeddings=True,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
            bos_token_id=None,
        )
    )


def save(directory: Path, **model_options: Any) -> str:
    """Write model and tokenizer to a directory and return it: what a trainer takes in place of a model's hub name."""
    chosen = tokenizer()
    chosen.save_pretrained(directory)
    model(chosen, **model_options).save_pretrained(directory)
    return str(directory)


def sentence(words: int, seed: int) -> str:
    """That many words, each one or two places after the last in the vocabulary, so that there is something to learn;
    the same for the same seed."""
    chance = random.Random(seed)
    places = accumulate([chance.randrange(len(WORDS)), *chance.choices((1, 1, 1, 2), k=words - 1)])
    return " ".join(WORDS[place % len(WORDS)] for place in places)


def prompts(rows: int = 16, *, conversational: bool = False) -> Dataset:
    """Prompts of 3 to 7 words for GRPO or RLOO, with the row's number as `answer`."""
    from datasets import Dataset

    texts = [sentence(3 + row % 5, row) for row in range(rows)]
    prompt = [[_user(text)] for text in texts] if conversational else texts
    return Dataset.from_dict({"prompt": prompt, "answer": list(range(rows))})


def texts(rows: int = 32, form: TextForm = "text", *, long_every: int = 4) -> Dataset:
    """Sentences of 5 to 11 words for SFT, every `long_every`-th of 60, in one of the forms that TRL takes."""
    from datasets import Dataset

    lines = [sentence(60 if row % long_every == 0 else 5 + row % 7, row) for row in range(rows)]
    asks = [sentence(4, 1000 + row) for row in range(rows)]
    if form == "text":
        return Dataset.from_dict({"text": lines})
    if form == "messages":
        return Dataset.from_dict({"messages": [[_user(a), _assistant(b)] for a, b in zip(asks, lines, strict=True)]})
    return Dataset.from_dict({"prompt": asks, "completion": [" " + line for line in lines]})


def _user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def _assistant(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}
