"""What only a GPU can show, as one script of at most six minutes: `python gpu_tests/run.py`.

It needs torch with CUDA, nvidia-ml-py and this repository, uses the first GPU that CUDA shows, and prints its figures.
A check that this machine cannot do says why and is skipped; one that fails ends the script with 1.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

from akka_otel_callbacks.common.gpu.health import GpuHealth  # noqa: E402
from akka_otel_callbacks.common.memory.account import MemoryAccount, StepMemory  # noqa: E402
from akka_otel_callbacks.common.memory.allocator import CudaAllocator  # noqa: E402
from akka_otel_callbacks.common.vocabulary import names  # noqa: E402

MIB = 1 << 20
TIME_LIMIT_S = 360.0


class Skipped(Exception):
    """This machine cannot do the check; the message says why."""


def wait_for(condition: Callable[[], Any], timeout_s: float = 20.0) -> Any:
    deadline = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)
    return found


def child(script: str, timeout_s: float = 90.0) -> subprocess.CompletedProcess[str]:
    """Runs a program beside this one that has this repository on its path."""
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], env=environ, capture_output=True, text=True, timeout=timeout_s
    )


def one(health: GpuHealth, metric: Any, **attributes: str) -> float:
    """The value of the only point that has these attributes."""
    wanted = {key.replace("__", "."): value for key, value in attributes.items()}
    values = [value for value, found in health.points(metric) if wanted.items() <= found.items()]
    assert len(values) == 1, f"{metric.name}: {health.points(metric)}"
    return values[0]


def smi(uuid: str, *fields: str) -> list[str]:
    """What nvidia-smi says of a GPU."""
    command = ["nvidia-smi", f"--id={uuid}", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise Skipped(f"nvidia-smi gives no answer here: {error}") from error
    return [value.strip() for value in answer.stdout.strip().split(",")]


def check_identity() -> None:
    """The device is the one that torch uses, and nothing was done to CUDA to find it."""
    import torch

    health = GpuHealth([0], interval_s=0.2)
    health.start()
    (device,) = wait_for(health.devices.held)
    health.stop()
    torch_uuid = str(torch.cuda.get_device_properties(0).uuid)
    assert device is not None, "NVML did not find the GPU that torch uses"
    assert device.uuid.split("-", 1)[1] == torch_uuid, (device, torch_uuid)
    print(f"  {device.name}, {device.uuid}, as torch says")

    torch.cuda.synchronize()
    in_use = one(health, names.HW_GPU_MEMORY_USAGE)
    watching = child(
        f"""
        import time
        from akka_otel_callbacks.common.vocabulary import names
        from akka_otel_callbacks.common.gpu.health import GpuHealth
        health = GpuHealth(["{device.uuid}"], interval_s=0.2)
        health.start()
        time.sleep(2)
        print(health.points(names.HW_GPU_MEMORY_USAGE)[0][0])
        """
    )
    assert watching.returncode == 0, watching.stderr
    grown = int(watching.stdout) - in_use
    print(f"  a process that only watches takes {grown / MIB:.0f} MiB of the GPU; a CUDA context takes hundreds")
    assert grown < 100 * MIB


def check_figures_against_nvidia_smi() -> None:
    """Under load, each figure beside nvidia-smi's of the same moment."""
    import torch

    matrix = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    health = GpuHealth([0], interval_s=0.25)
    health.start()
    deadline = time.monotonic() + 4
    while time.monotonic() < deadline:
        for _ in range(50):
            matrix @ matrix
        torch.cuda.synchronize()
    (device,) = health.devices.held()
    assert device is not None
    fields = ("power.draw", "temperature.gpu", "utilization.gpu", "memory.total", "clocks.sm", "clocks.mem")
    said = smi(device.uuid, *fields)
    used = smi(device.uuid, "memory.used", "memory.reserved")
    ours: tuple[tuple[Any, float, dict[str, str], float, float], ...] = (
        (names.HW_POWER, 1, {}, 0.5, 30),
        (names.HW_TEMPERATURE, 1, {"hw__sensor_location": "gpu"}, 0, 5),
        (names.HW_GPU_UTILIZATION, 100, {"hw__gpu__task": "general"}, 0, 60),
        (names.HW_GPU_MEMORY_LIMIT, 1 / MIB, {}, 0.001, 1),
        (names.GPU_CLOCK_FREQUENCY, 1e-6, {names.ATTR_GPU_CLOCK_DOMAIN.name: "sm"}, 0.3, 0),
        (names.GPU_CLOCK_FREQUENCY, 1e-6, {names.ATTR_GPU_CLOCK_DOMAIN.name: "memory"}, 0.05, 0),
    )
    for field, text, (metric, scale, attributes, relative, absolute) in zip(fields, said, ours, strict=True):
        if "N/A" in text:
            assert health.points(metric) == [], f"{metric.name} is published, nvidia-smi says {text}"
            print(f"  {field}: not supported, and absent")
            continue
        figure, theirs = one(health, metric, **attributes) * scale, float(text)
        print(f"  {field}: {figure:.1f}, nvidia-smi {theirs:.1f}")
        assert abs(figure - theirs) <= relative * abs(theirs) + absolute, field
    if not any("N/A" in text for text in used):
        figure, theirs = one(health, names.HW_GPU_MEMORY_USAGE) / MIB, sum(map(float, used))
        print(f"  memory in use: {figure:.0f} MiB, nvidia-smi's used and reserved {theirs:.0f} MiB")
        assert abs(figure - theirs) <= 64
    for metric in health.metrics:
        print(f"    {metric.name}: {[value for value, _ in health.points(metric)]}")
    health.stop()


def check_sampler_cost() -> None:
    """CPU of one sample with the real driver."""
    health = GpuHealth([0])
    health._sampler.sample()
    times = []
    for _ in range(100):
        began = time.thread_time()
        health._sampler.sample()
        times.append(time.thread_time() - began)
    cost_s = statistics.median(times)
    share = 8 * cost_s / 5
    print(f"  {cost_s * 1e3:.2f} ms of CPU a sample; of 8 GPUs every 5 s {share:.4%} of one core")
    assert share < 0.001


class Training:
    """A transformer-like stack whose memory is known: bf16 weights, AdamW, one large activation per layer."""

    def __init__(self) -> None:
        import torch
        from torch import nn

        self.torch = torch
        self.model = nn.Sequential(*[m for _ in range(8) for m in (nn.Linear(4096, 4096), nn.GELU())])
        self.model.to(device="cuda", dtype=torch.bfloat16)
        self.weights = sum(p.numel() * 2 for p in self.model.parameters())
        self.optimizer = torch.optim.AdamW(self.model.parameters(), fused=True)
        self.batch = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)

    def update(self, before_optimizer_step: Callable[[], None] = lambda: None) -> None:
        self.model(self.batch).float().square().mean().backward()
        before_optimizer_step()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def generate(self, size: int) -> None:
        self.torch.empty(size, dtype=self.torch.uint8, device="cuda").zero_()


def show(step: StepMemory) -> dict[str, int]:
    parts = step.parts()
    assert parts is not None
    print("    " + ", ".join(f"{part} {size / MIB:.0f}" for part, size in parts.items()) + " MiB")
    return parts


def check_memory_parts() -> None:
    """The parts of real steps, against the tensors, torch's own peak and the driver."""
    import torch

    training = Training()
    training.update()  # creates the optimizer's state
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    training.update()
    torch_peak = torch.cuda.max_memory_allocated()

    account = MemoryAccount([CudaAllocator(0)], parts=True)
    account.watch([training.model], training.optimizer)
    account.begin_step()
    training.update(account.before_optimizer_step)
    step = account.end_step()
    assert step is not None
    parts = show(step)
    free, total = torch.cuda.mem_get_info()
    outside = {"allocator", "external", "free"}
    assert sum(parts.values()) == total
    assert min(parts.values()) >= 0
    assert parts["weights"] == training.weights, "bytes of the parameters"
    assert parts["gradients"] == training.weights, "as many, and of the same type"
    assert abs(parts["optimizer"] - 2 * training.weights) < MIB, "two moments"
    tensors = sum(size for part, size in parts.items() if part not in outside)
    print(f"    peak {tensors / MIB:.1f} MiB, by torch in the step before {torch_peak / MIB:.1f} MiB")
    assert abs(tensors - torch_peak) < MIB
    in_use, held = total - free, torch.cuda.memory_reserved() + parts["external"]
    print(f"    driver: {in_use / MIB:.0f} MiB in use, allocator and external {held / MIB:.0f} MiB")
    assert abs(in_use - held) < 64 * MIB

    account.begin_step()
    account.begin_generation()
    training.generate(8 << 30 if free > 16 << 30 else free // 2)
    account.end_generation()
    training.update(account.before_optimizer_step)
    step = account.end_step()
    assert step is not None
    parts = show(step)
    assert sum(parts.values()) == total
    assert parts["generation"] > 0
    assert parts["activations"] == parts["gradients"] == 0
    assert step.max_allocated >= torch_peak


def check_memory_account_never_waits() -> None:
    """The account's calls return while the GPU is busy, and cost less than a millisecond."""
    import torch

    training = Training()
    training.update()
    account = MemoryAccount([CudaAllocator(0)], parts=True)
    account.watch([training.model], training.optimizer)
    account.begin_step()
    account.end_step()
    torch.cuda.synchronize()
    matrix = torch.randn(8192, 8192, device="cuda", dtype=torch.float32)
    done = torch.cuda.Event()
    for _ in range(200):
        matrix @ matrix
    done.record()
    spent: dict[str, float] = {}
    for call in (
        account.begin_step,
        account.begin_generation,
        account.end_generation,
        account.before_optimizer_step,
        account.end_step,
    ):
        began = time.perf_counter()
        call()
        spent[call.__name__] = time.perf_counter() - began
    busy = not done.query()
    torch.cuda.synchronize()
    print("  " + ", ".join(f"{name} {seconds * 1e6:.0f} us" for name, seconds in spent.items()))
    assert busy, "the account waited for the GPU, or the GPU was too fast for this check"
    assert sum(spent.values()) < 1e-3


PAGE_FAULT = """
import sys, torch
torch.zeros(1, device="cuda")
kernel = torch.cuda._compile_kernel(
    'extern "C" __global__ void fault(float *x) { *(float *)0x10 = 1.0f; }', "fault"
)
try:
    kernel((1, 1, 1), (1, 1, 1), (torch.zeros(1, device="cuda"),))
    torch.cuda.synchronize()
except Exception as error:
    sys.exit(0 if "illegal" in str(error) else f"another error: {error}")
sys.exit("no error")
"""


def check_xid() -> None:
    """A page fault in another process, which ends only that process, arrives as an XID."""
    import torch

    if not hasattr(torch.cuda, "_compile_kernel"):
        raise Skipped(f"torch {torch.__version__} cannot compile the kernel that faults")
    health = GpuHealth([0], interval_s=0.5)
    health.start()
    try:
        wait_for(health.devices.held)
        try:
            wait_for(lambda: health.points(names.GPU_XID_ERRORS), timeout_s=5)
        except AssertionError as error:
            raise Skipped("NVML delivers no events on this machine") from error
        assert one(health, names.GPU_XID_ERRORS) == 0
        faulted = child(PAGE_FAULT)
        if faulted.returncode:
            raise Skipped(f"the fault could not be provoked: {faulted.stderr.strip()[-300:]}")
        code = wait_for(lambda: health.points(names.GPU_XID_LAST))[0][0]
        print(f"  XID {code:.0f}, {one(health, names.GPU_XID_ERRORS):.0f} counted")
        assert code in (13, 31)
    finally:
        health.stop()


def check_mfu() -> None:
    """The efficiency figures have a script of their own."""
    script = Path(__file__).with_name("mfu.py")
    if not script.exists():
        raise Skipped("gpu_tests/mfu.py is not here")
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, str(script)], env=environ, capture_output=True, text=True, timeout=180)
    print(textwrap.indent(done.stdout.strip(), "  "))
    assert done.returncode == 0, done.stderr[-2000:]


CHECKS = (
    check_identity,
    check_figures_against_nvidia_smi,
    check_sampler_cost,
    check_memory_parts,
    check_memory_account_never_waits,
    check_xid,
    check_mfu,
)


def why_not_here() -> str | None:
    """Why this machine can do none of the checks; None where it can."""
    try:
        import torch
    except ImportError:
        return "torch is not installed"
    if not torch.cuda.is_available():
        return f"torch {torch.__version__} sees no CUDA device"
    try:
        import pynvml  # noqa: F401
    except ImportError:
        return "nvidia-ml-py is not installed"
    torch.zeros(1, device="cuda")
    return None


def main() -> int:
    reason = why_not_here()
    if reason is not None:
        print(f"SKIPPED, all of it: {reason}")
        return 0
    began, failed = time.monotonic(), []
    for check in CHECKS:
        name = check.__name__.removeprefix("check_").replace("_", " ")
        if time.monotonic() - began > TIME_LIMIT_S - 100:
            print(f"SKIPPED {name}: the time is used up")
            continue
        print(f"{name}: {check.__doc__}", flush=True)
        try:
            check()
            print(f"ok {name} ({time.monotonic() - began:.0f} s)", flush=True)
        except Skipped as reason_of_one:
            print(f"SKIPPED {name}: {reason_of_one}", flush=True)
        except Exception as error:  # noqa: BLE001 - the other checks have figures too
            failed.append(name)
            print(f"FAILED {name}: {type(error).__name__}: {error}", flush=True)
    print(f"{len(failed)} failed {failed} in {time.monotonic() - began:.0f} s")
    return int(bool(failed))


if __name__ == "__main__":
    raise SystemExit(main())
