"""MFU of a bf16 training step of a 0.5 B model on one GPU, from its measured time: `python gpu_tests/mfu.py`.

It needs torch with CUDA and this repository, nothing else: the model is written out below, with the sizes of Qwen2.5
0.5B. Without a CUDA device it says so and ends with 0.
"""

from __future__ import annotations

import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "src")]

from akka_otel_callbacks.common.flops import matmul_parameters, mfu, train_flops  # noqa: E402
from akka_otel_callbacks.common.flops.peaks import dense_bf16_peak  # noqa: E402

if TYPE_CHECKING:
    import torch

STEPS, WARM_UP = 12, 4


@dataclass(frozen=True)
class Sizes:
    """Of a decoder, and of the batch that it is trained on."""

    hidden: int = 896
    intermediate: int = 4864
    layers: int = 24
    heads: int = 14
    groups: int = 2
    vocabulary: int = 151936
    rows: int = 8
    length: int = 1024

    @property
    def tokens(self) -> int:
        return self.rows * self.length

    @property
    def matmul_parameters(self) -> int:
        """By hand: query, key, value and output, the three of the feed-forward part, the head."""
        projections = 2 * self.hidden**2 + 2 * self.hidden * (self.hidden // self.heads) * self.groups
        return self.layers * (projections + 3 * self.hidden * self.intermediate) + self.hidden * self.vocabulary


def decoder(sizes: Sizes) -> torch.nn.Module:
    """A causal language model with grouped queries and a tied head."""
    from torch import nn
    from torch.nn import functional

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            hidden, narrow = sizes.hidden, sizes.hidden // sizes.heads * sizes.groups
            self.before, self.between = nn.RMSNorm(hidden), nn.RMSNorm(hidden)
            self.query, self.output = nn.Linear(hidden, hidden), nn.Linear(hidden, hidden, bias=False)
            self.key, self.value = nn.Linear(hidden, narrow), nn.Linear(hidden, narrow)
            self.gate, self.up = (nn.Linear(hidden, sizes.intermediate, bias=False) for _ in range(2))
            self.down = nn.Linear(sizes.intermediate, hidden, bias=False)

        def forward(self, states: torch.Tensor) -> torch.Tensor:
            rows, length, _ = states.shape
            normed = self.before(states)
            query, key, value = (
                projection(normed).view(rows, length, -1, sizes.hidden // sizes.heads).transpose(1, 2)
                for projection in (self.query, self.key, self.value)
            )
            seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
            states = states + self.output(seen.transpose(1, 2).reshape(rows, length, -1))
            normed = self.between(states)
            return states + self.down(functional.silu(self.gate(normed)) * self.up(normed))

    class Decoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(sizes.vocabulary, sizes.hidden)
            self.layers = nn.Sequential(*(Layer() for _ in range(sizes.layers)))
            self.head = nn.Linear(sizes.hidden, sizes.vocabulary, bias=False)
            self.head.weight = self.embedding.weight

        def get_output_embeddings(self) -> nn.Module:
            return self.head

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            logits = self.head(self.layers(self.embedding(tokens)))
            return functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())

    return Decoder()


def check_count(model: Any, tokens: torch.Tensor, sizes: Sizes) -> None:
    """The live count is the hand count and what torch counts of a real pass."""
    from torch.utils.flop_counter import FlopCounterMode

    counted = matmul_parameters(model)
    assert counted is not None
    assert counted.total == sizes.matmul_parameters
    with FlopCounterMode(display=False) as counter:
        model(tokens).backward()
    model.zero_grad(set_to_none=True)
    products = {operator.__name__: flops for operator, flops in counter.get_flop_counts()["Global"].items()}
    linear = products.get("mm", 0) + products.get("addmm", 0)
    assert linear == train_flops(counted, sizes.tokens), f"{linear} measured"
    print(
        f"{counted.total:,} matmul parameters; torch measures {linear:.6e} FLOPs in the linear layers of a step, as we"
    )


def step_seconds(model: Any, tokens: torch.Tensor) -> float:
    """Median seconds of a training step, by the device's own clock."""
    import torch

    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    seconds = []
    for _ in range(STEPS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        model(tokens).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        end.record()
        torch.cuda.synchronize()
        seconds.append(begin.elapsed_time(end) / 1e3)
    return statistics.median(seconds[WARM_UP:])


def product_flops_per_second(size: int = 8192, repeats: int = 20) -> float:
    """What the device does in one large bf16 product, which a right peak is not below."""
    import torch

    left, right = (torch.randn(size, size, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    for _ in range(5):
        left @ right
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(repeats):
        left @ right
    torch.cuda.synchronize()
    return 2 * size**3 * repeats / (time.perf_counter() - began)


def main() -> int:
    try:
        import torch
    except ImportError:
        print("SKIPPED: torch is not installed")
        return 0
    if not torch.cuda.is_available():
        print(f"SKIPPED: torch {torch.__version__} sees no CUDA device")
        return 0
    sizes, name = Sizes(), torch.cuda.get_device_name(0)
    with torch.device("cuda"):
        model = decoder(sizes).bfloat16()
        tokens = torch.randint(sizes.vocabulary, (sizes.rows, sizes.length))
    check_count(model, tokens, sizes)
    peak = dense_bf16_peak(name)
    if peak is None:
        print(f"SKIPPED the utilization: the peak of {name!r} is not known")
        return 0
    product, seconds = product_flops_per_second(), step_seconds(model, tokens)
    counted = matmul_parameters(model)
    assert counted is not None
    ours = mfu(train_flops(counted, sizes.tokens), seconds, peak)
    by_hand = 6 * sizes.matmul_parameters * sizes.tokens / seconds / peak
    print(f"{name}: peak {peak / 1e12:.1f} TFLOP/s, a large product reaches {product / peak:.1%} of it")
    print(f"a step of {sizes.tokens} tokens takes {seconds * 1e3:.1f} ms: MFU {ours:.4f}, by hand {by_hand:.4f}")
    assert ours is not None
    assert abs(ours / by_hand - 1) < 1e-9
    assert product <= peak, "a product is faster than the peak, which is wrong then"
    assert ours < product / peak, "a step is more efficient than a bare product"
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
