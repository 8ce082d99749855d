"""A verl plugin that lets verl train on a machine without a GPU. It does nothing unless `VERL_CPU=1`.

Everything is verl's own but three parts: the accelerator platform, the rollout server (plain sampling with
transformers) and, for disaggregated trainers, the way in which weights travel.
"""

import os

if os.environ.get("VERL_CPU") == "1":
    from verl_cpu import platform

    platform.install()
