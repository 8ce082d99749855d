"""Trains with Unsloth on a CPU: `unsloth_training.py sft|grpo MODEL`. It is run by the test, within its environment."""

from __future__ import annotations

import sys

import unsloth  # isort: skip - it patches what is imported after it
import torch
import trl
from rows import Rows, letters
from unsloth.models.rl import patch_trl_rl_trainers

from akka_otel_callbacks.demo import tiny
from akka_otel_callbacks.trl import AkkaTelemetryCallback

kind, path = sys.argv[1:]
patch_trl_rl_trainers()  # on a machine with a GPU, Unsloth does so by itself
model, tokenizer = unsloth.FastLanguageModel.from_pretrained(path, 64, dtype=torch.float32, load_in_4bit=False)
common = {
    "output_dir": "out",
    "max_steps": 4,
    "logging_steps": 1,
    "learning_rate": 1e-3,
    "report_to": [],
    "save_strategy": "no",
    "use_cpu": True,
    "bf16": False,
    "optim": "adamw_torch",
}
callbacks = [AkkaTelemetryCallback(), Rows()]
if kind == "sft":
    trainer = trl.SFTTrainer(
        model=model,
        processing_class=tokenizer,
        args=trl.SFTConfig(
            per_device_train_batch_size=2, gradient_accumulation_steps=2, max_length=32, packing=False, **common
        ),
        train_dataset=tiny.texts(32),
        callbacks=callbacks,
    )
else:
    model = unsloth.FastLanguageModel.get_peft_model(model, r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"])
    trainer = trl.GRPOTrainer(
        model=model,
        processing_class=tokenizer,
        reward_funcs=[letters],
        args=trl.GRPOConfig(
            per_device_train_batch_size=4,
            gradient_accumulation_steps=2,
            num_generations=4,
            max_completion_length=8,
            beta=0.04,
            **common,
        ),
        train_dataset=tiny.prompts(16),
        callbacks=callbacks,
    )
trainer.train()
