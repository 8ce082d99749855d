"""The FLOPs estimates of this package, of verl and of TRL beside what torch's own counter measures.

`python -m benchmarks.flops_error` compares them for models of published sizes: built without memory (on `meta`), whose
forward pass torch counts without running it. `--architectures` prints, for the tiny models of the tests, the count on
the live model beside the measured one, and `--peaks` the peaks of devices, as docs/efficiency.md has them. All need the
environment of the TRL tests or of verl; an estimate of what is not installed is left out.

The measured figure is that of a training pass: three times the forward pass, whose attention counts what a causal mask
lets through, since a kernel skips the rest.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable
from typing import Any

import torch
import transformers
from torch.utils.flop_counter import FlopCounterMode

from akka_otel_callbacks.common.flops import matmul_parameters, train_flops
from akka_otel_callbacks.common.flops.peaks import PEAKS
from benchmarks.config_estimate.estimate import architecture, estimate_from_config
from tests.common.flops import models as flops_models

LENGTH = 2048
ATTENTION = ("self_attn", "attn")

MODELS: dict[str, dict[str, Any]] = {
    "GPT-2": {"model_type": "gpt2", "n_positions": LENGTH},
    "Qwen2.5 0.5B": {
        "model_type": "qwen2",
        "hidden_size": 896,
        "intermediate_size": 4864,
        "num_hidden_layers": 24,
        "num_attention_heads": 14,
        "num_key_value_heads": 2,
        "vocab_size": 151936,
        "tie_word_embeddings": True,
    },
    "Llama 3.2 1B": {
        "model_type": "llama",
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 16,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 64,
        "vocab_size": 128256,
        "tie_word_embeddings": True,
    },
    "Gemma 1 2B": {
        "model_type": "gemma",
        "hidden_size": 2048,
        "intermediate_size": 16384,
        "num_hidden_layers": 18,
        "num_attention_heads": 8,
        "num_key_value_heads": 1,
        "head_dim": 256,
        "vocab_size": 256000,
    },
    "Qwen3 8B": {
        "model_type": "qwen3",
        "hidden_size": 4096,
        "intermediate_size": 12288,
        "num_hidden_layers": 36,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 151936,
    },
    "Llama 3.1 8B": {
        "model_type": "llama",
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "vocab_size": 128256,
    },
    "Phi-4 14B": {
        "model_type": "phi3",
        "hidden_size": 5120,
        "intermediate_size": 17920,
        "num_hidden_layers": 40,
        "num_attention_heads": 40,
        "num_key_value_heads": 10,
        "vocab_size": 100352,
        "pad_token_id": 0,
    },
    "Qwen3 30B-A3B": {
        "model_type": "qwen3_moe",
        "hidden_size": 2048,
        "intermediate_size": 6144,
        "moe_intermediate_size": 768,
        "num_hidden_layers": 48,
        "num_attention_heads": 32,
        "num_key_value_heads": 4,
        "head_dim": 128,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "vocab_size": 151936,
    },
    "Mixtral 8x7B": {
        "model_type": "mixtral",
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
        "vocab_size": 32000,
    },
}


def on_meta(settings: dict[str, Any]) -> Any:
    """The model without memory. Experts multiply in batches: to loop over those that were hit, values are needed."""
    config = transformers.CONFIG_MAPPING[settings["model_type"]](
        **{name: value for name, value in settings.items() if name != "model_type"}
    )
    config._attn_implementation, config._experts_implementation = "eager", "batched_mm"
    with torch.device("meta"):
        return transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)


def measured(model: Any) -> tuple[float, float]:
    """FLOPs of a training pass over one sequence: of linear layers, and of causal attention."""
    tokens = torch.zeros(1, LENGTH, dtype=torch.long, device="meta")
    mask = torch.zeros(1, 1, LENGTH, LENGTH, device="meta", dtype=model.dtype)  # no values to derive one from
    with FlopCounterMode(display=False) as counter:
        model(input_ids=tokens, attention_mask=mask, use_cache=False)
    linear = attention = 0.0
    for module, counts in counter.get_flop_counts().items():
        products = {operator.__name__: flops for operator, flops in counts.items()}
        last = module.rpartition(".")[2]
        if module == "Global":
            linear += products.get("mm", 0) + products.get("addmm", 0)
        elif last == "experts":
            linear += products.get("bmm", 0)
        elif last in ATTENTION:
            attention += products.get("bmm", 0) * (LENGTH + 1) / (2 * LENGTH)
    return 3 * linear, 3 * attention


def of_verl() -> Callable[[Any], float | None] | None:
    try:
        from verl.utils.flops_counter import ESTIMATE_FUNC
    except ImportError as error:
        print(f"verl's estimate is left out: {error}.\n")
        return None

    def estimate(config: Any) -> float | None:
        """verl gives TFLOP/s, of a pass that took one second; 0 for an architecture that it does not know."""
        known = ESTIMATE_FUNC.get(config.model_type)
        return known(config, LENGTH, [LENGTH], 1.0) * 1e12 if known else None

    return estimate


def of_trl() -> Callable[[Any], float | None] | None:
    try:
        from trl.trainer.utils import compute_flops_per_token
    except ImportError as error:
        print(f"TRL's estimate is left out: {error}.\n")
        return None
    return lambda config: compute_flops_per_token(config, LENGTH) * LENGTH


def error(estimate: Callable[[Any], float | None] | None, config: Any, truth: float) -> str:
    """How far the estimate is from the truth, or why there is none."""
    if estimate is None:
        return "–"
    try:
        value = estimate(config)
    except (AttributeError, TypeError, KeyError) as failure:
        return f"fails: {type(failure).__name__}"
    return f"{value / truth - 1:+.2%}" if value else "none"


def compare_estimates() -> None:
    verl, trl = of_verl(), of_trl()
    print(f"Error of each estimate against the measured training FLOPs of one sequence of {LENGTH} tokens.\n")
    print("| model | measured linear | with attention | live count, of linear | configuration | verl | TRL |")
    print("|---|---|---|---|---|---|---|")
    for name, settings in MODELS.items():
        model = on_meta(settings)
        parameters = matmul_parameters(model)
        assert parameters is not None
        linear, attention = measured(model)
        cells = [
            name,
            f"{linear:.4e}",
            f"{linear + attention:.4e}",
            f"{train_flops(parameters, LENGTH) / linear - 1:+.2%}",
            error(lambda config: estimate_from_config(config, [LENGTH]), model.config, linear + attention),
            error(verl, model.config, linear + attention),
            error(trl, model.config, linear + attention),
        ]
        print(f"| {' | '.join(cells)} |", flush=True)


def compare_architectures() -> None:
    tokens, lengths = flops_models.TOKENS, [flops_models.LENGTH] * flops_models.BATCH
    print(
        "| architecture | parameters met | × 2 × tokens | measured | difference | attention | measured | difference |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for model_type in [*flops_models.TEXT_MODELS, *flops_models.MULTIMODAL_MODELS]:
        if model_type not in transformers.CONFIG_MAPPING:
            continue
        config, parameters, truth = flops_models.sample(model_type)
        described = architecture(config)
        assert parameters is not None
        linear, attention = 2 * parameters.total * tokens, described.attention_flops(lengths) if described else 0
        cells = [
            model_type,
            f"{parameters.total:,}",
            f"{linear:,}",
            f"{truth.linear:,}",
            f"{linear - truth.linear:,}",
            f"{attention:,}",
            f"{int(truth.attention):,}",
            f"{int(attention - truth.attention):,}",
        ]
        print(f"| {' | '.join(cells)} |", flush=True)


def peak_rows() -> list[str]:
    """The known devices, one row each."""
    return [f"| {model} | {peak.tflops:g} | {peak.precision} | {peak.source} |" for model, peak in PEAKS.items()]


def print_peaks() -> None:
    print("| device | dense TFLOP/s | precision | source |\n|---|---|---|---|")
    print("\n".join(peak_rows()))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    tables = parser.add_mutually_exclusive_group()
    tables.add_argument("--architectures", action="store_true", help="the tiny models of the tests, one a row")
    tables.add_argument("--peaks", action="store_true", help="the known devices, one a row")
    asked = parser.parse_args()
    transformers.logging.set_verbosity_error()
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    table = compare_architectures if asked.architectures else print_peaks if asked.peaks else compare_estimates
    table()
