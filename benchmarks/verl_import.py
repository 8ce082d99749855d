"""What the plugin costs each of verl's processes: its import, and the hooks of the modules that the process loads.

`python -m benchmarks.verl_import` starts fresh interpreters. The plugin's import is timed after `import verl`, where
verl loads it; the hooks are timed while the modules of a worker, of an agent loop and of the trainer's process are
imported. It is the importing thread's processor time, without garbage collections, which fall on whoever allocates
next. Bytecode is cached, as it is wherever the package is installed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

TARGET_IMPORT_MS = 20.0
WORKER = ("verl.single_controller.base.worker", "verl.trainer.ppo.core_algos", "verl.workers.engine_workers")
LOOP = ("verl.experimental.agent_loop.tool_agent_loop",)
TRAINER = ("verl.utils.tracking", "verl.trainer.ppo.v1.trainer_base")
TIMED = """
import gc, importlib, json, sys, time
import verl
gc.disable()
start = time.thread_time()
from akka_otel_callbacks.verl import plugin
loaded = time.thread_time() - start
hooks = []
install = plugin.install
def timed(hook, module):
    start = time.thread_time()
    install(hook, module)
    hooks.append(time.thread_time() - start)
plugin.install = timed
for module in sys.argv[1:]:
    importlib.import_module(module)
print(json.dumps([loaded, sum(hooks), len(hooks), len(plugin.failed)]))
"""


def timed(modules: tuple[str, ...], bytecode: str) -> tuple[float, float, int]:
    """Milliseconds of the plugin's import and of the hooks, and how many hooks ran."""
    environ = {**os.environ, "PYTHONPYCACHEPREFIX": bytecode, "VERL_USE_EXTERNAL_PLUGINS": "none"}
    environ.pop("PYTHONDONTWRITEBYTECODE", None)
    process = subprocess.run(
        [sys.executable, "-c", TIMED, *modules], env=environ, capture_output=True, text=True, check=True
    )
    loaded, hooks, count, failed = json.loads(process.stdout.splitlines()[-1])
    assert not failed, "a hook found no place in this verl"
    return loaded * 1000, hooks * 1000, count


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=3)
    repeat = parser.parse_args().repeat
    imports: list[float] = []
    with tempfile.TemporaryDirectory() as bytecode:
        for name, modules in (("worker", WORKER), ("agent loop", LOOP), ("trainer", TRAINER)):
            timed(modules, bytecode)  # writes the bytecode
            runs = [timed(modules, bytecode) for _ in range(repeat)]
            imports += [run[0] for run in runs]
            hooks = statistics.median(run[1] for run in runs)
            print(f"{name + ':':11} {runs[0][2]} hooks in {hooks:.1f} ms")
    loaded = statistics.median(imports)
    print(f"plugin:     {loaded:.1f} ms, at most {max(imports):.1f} (target {TARGET_IMPORT_MS:g})")
    return loaded > TARGET_IMPORT_MS


if __name__ == "__main__":
    sys.exit(main())
