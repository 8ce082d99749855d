"""Which settings of a run make a difference to its training. The hash of the settings is taken over these."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from akka_otel_callbacks.common.run.model_name import is_place, last_part

LEFT_OUT: Mapping[str, str] = {
    "places": r"([a-z]*(path|dir|url|uri|host|addr|file|address)|directory|directories|folder|filename|hostname|port"
    r"|addresses|ip|proxy|proxies|endpoint|webhook|dsn|connection_string|(?<!length_)bucket|socket|region|zone"
    r"|namespace|cluster)s?(_(name|prefix|suffix|range|list|template|map|id))*$",
    "secrets": r"(auth|authorization|authentication|bearer|cookie|credential|jwt|[a-z]*password|passwd|passphrase|pwd"
    r"|[a-z]*secret|signature|certificate|cert|keytab|username|(api|access|private|auth|hf|hub)(key|token))s?(_|$)",
    "keys": r"(api|access|secret|private|public|ssh|account|license|auth|encryption|signing|ingest|ingestion|storage"
    r"|master|shared|service|client|session|subscription|deploy|aws|azure|gcp|hf|hub|openai|wandb)_keys?(_id)?$",
    "tokens": r"(?<!bos_)(?<!eos_)(?<!pad_)(?<!unk_)(?<!sep_)(?<!cls_)(?<!mask_)(?<!image_)(?<!video_)(?<!audio_)"
    r"(?<!stop_)(?<!special_)(?<!per_)(?<!think_)token$|(api|access|auth|hf|hub)_tokens$",
    "people": r"(user|login|email|account|organization|entity|owner|principal)$|(db|proxy|ssh|smtp|user)_pass$",
    "names": r"(project|exp|experiment|run|job|trial|group)_(name|id)$|(tags|notes|project)$",
    "reports": r"(log(?!_probs?)|logs|logger|loggers|logging|report|verbose|print|tqdm|tracker|trackers|tracking"
    r"|profile|profiler|telemetry|otel|prometheus|wandb|mlflow|tensorboard|trackio|swanlab|comet|clearml|neptune)(_|$)",
    "saving": r"((?<!to_)save|saving|ckpts?|checkpoints?|resume|hub|upload)(_|$)",
    "evaluation": r"(eval|evals|evaluation|evaluations|val|validate|validation|test|testing)(_|$)|do_predict$",
    "best of evaluations": r"(metric_for_best_model|greater_is_better|load_best_model_at_end|prediction_loss_only"
    r"|predict_with_generate|include_(inputs_)?for_metrics)$",
    "chat templates": r"chat_template(_|$)",
    "machine": r"(num|n)_(workers|proc|processes|gpus|nodes|machines)$|timeout(_|$)|seed$|local_rank$|device$|nnodes$"
    r"|gpus_per_node$",
}
"""Names of settings that do not change what a training learns, as patterns that begin at the start of a word. Names are
matched in snake case."""

PATTERN = re.compile("|".join(rf"(?:^|_)(?:{pattern})" for pattern in LEFT_OUT.values()))
HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
OTHER = re.compile(r"[^a-z0-9]+")


def relevant(settings: Any, left_out: Collection[str] = ()) -> Any:
    """The settings that make a difference to the training, at any depth. Of a value that is a path or a URL only the
    last part stays, which is the same on every machine.

    Args:
        settings: nested mappings, lists and values.
        left_out: further names of settings to leave out.
    """
    if is_dataclass(settings) and not isinstance(settings, type):
        settings = {field.name: getattr(settings, field.name, None) for field in fields(settings)}
    if isinstance(settings, Mapping):
        kept = {
            key: relevant(value, left_out)
            for key, value in settings.items()
            if key not in left_out and not is_left_out(str(key))
        }
        return {key: value for key, value in kept.items() if value != {}}
    if isinstance(settings, (list, tuple)):
        return [relevant(item, left_out) for item in settings]
    return last_part(settings) if is_place(settings) else settings


def is_left_out(name: str) -> bool:
    return bool(PATTERN.search(OTHER.sub("_", HUMP.sub("_", name).lower())))
