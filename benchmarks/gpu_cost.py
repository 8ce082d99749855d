"""What the GPU part costs: the sampler for 8 GPUs at 5 s, and the memory account of a model of 1,000 tensors.

NVML is the tests' fake library behind the real nvidia-ml-py, so the sampler's figure is what Python and ctypes cost;
a real driver adds its own time, which `gpu_tests/run.py` measures. Run it from the repository:
`python benchmarks/gpu_cost.py`. It fails where a limit is exceeded.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

import torch  # noqa: E402
from torch import nn  # noqa: E402

from akka_otel_callbacks.common.gpu.health import GpuHealth  # noqa: E402
from akka_otel_callbacks.common.memory.account import MemoryAccount, Usage  # noqa: E402
from tests.fake_nvml import FakeDriver, build, load  # noqa: E402

GPUS, INTERVAL_S, CORE_SHARE_LIMIT = 8, 5.0, 0.001
TENSORS, STEP_LIMIT_S = 1000, 1e-3


def quietest(measure: Callable[[], float], rounds: int = 20, blocks: int = 10) -> float:
    """The lowest of the blocks' medians: what it costs where no neighbour takes the caches and the core away."""
    return min(statistics.median(measure() for _ in range(rounds)) for _ in range(blocks))


def cpu_s(function: Callable[[], object]) -> float:
    """Seconds of CPU that a call takes on this thread, the kernel's included."""

    def measure() -> float:
        began = time.thread_time()
        function()
        return time.thread_time() - began

    return quietest(measure)


def sampler(directory: Path) -> float:
    """Seconds of CPU for one sample of 8 GPUs with every figure there is."""
    library = build(directory)
    driver = FakeDriver(library, directory / "state")
    load(library, driver.path)
    for index in range(GPUS):
        gpu = driver.gpu(f"GPU-{index}")
        for field in (1, 3, 4, 82, 83, 142, 143, 144):
            gpu.field(field, 1)
    health = GpuHealth([f"GPU-{index}" for index in range(GPUS)], interval_s=INTERVAL_S)
    health._sampler.sample()
    sample_s = cpu_s(health._sampler.sample)
    export_s = cpu_s(lambda: [health.points(metric) for metric in health.metrics])
    series = sum(len(health.points(metric)) for metric in health.metrics)
    print(f"sample of {GPUS} GPUs: {sample_s * 1e3:.2f} ms of CPU, every {INTERVAL_S:.0f} s")
    print(f"  {sample_s / INTERVAL_S:.4%} of one core (limit {CORE_SHARE_LIMIT:.1%})")
    print(f"export of its {series} series: {export_s * 1e3:.2f} ms on the exporter's thread")
    return sample_s


class Allocator:
    """Answers at once: what is measured is the account's own work."""

    device = torch.device("cpu")

    def usage(self) -> Usage:
        return Usage(1 << 30, 2 << 30, 3 << 30, 4 << 30)

    def reset_peak(self) -> None:
        pass

    def driver(self) -> tuple[int, int]:
        return 70 << 30, 80 << 30


def memory() -> float:
    """Seconds of CPU that one GRPO step's five calls take on the training thread, once all tensors were seen."""
    model = nn.ModuleList(nn.Linear(4, 4) for _ in range(TENSORS // 2))
    optimizer = torch.optim.AdamW(model.parameters())
    account = MemoryAccount([Allocator()], parts=True)
    account.watch([model], optimizer)

    def gradients() -> None:
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # as every trainer does by default

    def step() -> float:
        spent = 0.0
        for call, then in (
            (account.begin_step, None),
            (account.begin_generation, None),
            (account.end_generation, gradients),
            (account.before_optimizer_step, optimizer.zero_grad),
            (account.end_step, None),
        ):
            began = time.thread_time()
            call()
            spent += time.thread_time() - began
            if then is not None:
                then()
        return spent

    first_s = step()
    gradients()
    optimizer.step()  # the state appears
    optimizer.zero_grad()
    with_state_s = step()
    step_s = quietest(step)
    account.begin_step()
    captured = account.end_step()
    assert captured is not None
    print(f"memory account of {TENSORS} tensors, a step: {step_s * 1e3:.3f} ms (limit {STEP_LIMIT_S * 1e3:.0f} ms)")
    print(f"  once, counting the weights: {first_s * 1e3:.1f} ms; the optimizer's state: {with_state_s * 1e3:.1f} ms")
    print(f"  its parts, off the training thread: {cpu_s(captured.parts) * 1e6:.0f} us")
    return step_s


def main() -> int:
    with tempfile.TemporaryDirectory() as directory:
        sample_s = sampler(Path(directory))
    step_s = memory()
    return int(sample_s / INTERVAL_S > CORE_SHARE_LIMIT or step_s > STEP_LIMIT_S)


if __name__ == "__main__":
    raise SystemExit(main())
