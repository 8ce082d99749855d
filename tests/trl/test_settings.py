"""Who a TRL run is: what its configuration says, what the environment and the code say before it, and its hash."""

from __future__ import annotations

import copy
import tempfile
from pathlib import Path
from typing import Any

import pytest
import trl
from peft import AutoPeftModelForCausalLM, LoraConfig
from transformers import Trainer

from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.trl import AkkaTelemetryCallback
from akka_otel_callbacks.trl.kinds import kind_of
from akka_otel_callbacks.trl.settings import engine_attributes, hyperparameters, settings_sha
from tests.trl.runs import Run, exported_run
from tests.trl.trainings import REWARDS, letters, online, penalty, sft

SHA = names.ATTR_RUN_SETTINGS_SHA


def identity(trainer: Trainer) -> dict[Any, Any]:
    return engine_attributes(trainer, trainer.args, kind_of(trainer))


def grpo(model: str, **settings: Any) -> Trainer:
    return online("GRPO", model, [], **settings)


# -- what the configuration says


def test_what_grpo_says(tiny_model: str) -> None:
    found = identity(grpo(tiny_model, learning_rate=3e-4))
    assert found[names.ATTR_RUN_ENGINE] == "trl"
    assert found[names.ATTR_RUN_METHOD] == "GRPO"
    assert found[names.ATTR_RUN_LEARNING_RATE] == 3e-4
    assert found[names.ATTR_RUN_GROUP_SIZE] == 4
    assert found[names.ATTR_RUN_LORA_RANK] is None
    assert found[names.ATTR_RUN_BASE_MODEL] == Path(tiny_model).name, "where it lies is nobody's business"


def test_what_sft_says(tiny_model: str) -> None:
    found = identity(sft(tiny_model, [], trainer={"peft_config": LoraConfig(r=6)}))
    assert found[names.ATTR_RUN_METHOD] == "SFT"
    assert found[names.ATTR_RUN_GROUP_SIZE] is None
    assert found[names.ATTR_RUN_LORA_RANK] == 6
    assert found[names.ATTR_RUN_BASE_MODEL] == Path(tiny_model).name


@pytest.mark.parametrize("name", ["tiny/Qwen3", "Qwen3"])
def test_a_model_of_the_hub_keeps_its_name(name: str, tiny_model: str) -> None:
    trainer = sft(tiny_model, [])
    trainer.model.config._name_or_path = name
    assert identity(trainer)[names.ATTR_RUN_BASE_MODEL] == name


@pytest.mark.parametrize(
    ("place", "name"),
    [
        ("./out/Qwen3", "Qwen3"),
        ("~/models/Qwen3/", "Qwen3"),
        ("https://me:S3CRET@host/Qwen3?sig=S3CRET", "Qwen3"),
        (r"C:\S3CRET\Qwen3", "Qwen3"),
        ("/cache/models--tiny--Qwen3/snapshots/0123", "tiny/Qwen3"),
    ],
)
def test_of_a_model_only_its_name_is_published(place: str, name: str, tiny_model: str) -> None:
    trainer = sft(tiny_model, [])
    trainer.model.config._name_or_path = place
    found = identity(trainer)
    assert found[names.ATTR_RUN_BASE_MODEL] == name
    assert "S3CRET" not in str(found)


def test_an_adapter_that_is_trained_on_goes_by_its_base(tiny_model: str, tmp_path: Path) -> None:
    """From its own folder, or beside a model that says no name."""
    first = sft(tiny_model, [], trainer={"peft_config": LoraConfig(r=4)})
    first.model.save_pretrained(str(tmp_path / "adapter"))
    adapter = AutoPeftModelForCausalLM.from_pretrained(str(tmp_path / "adapter"), is_trainable=True)
    onward = sft(adapter, [], trainer={"processing_class": first.processing_class})
    assert identity(onward)[names.ATTR_RUN_BASE_MODEL] == Path(tiny_model).name
    first.model.config._name_or_path = ""
    first.model.peft_config["default"].base_model_name_or_path = "s3://S3CRET/Qwen3"
    assert identity(first)[names.ATTR_RUN_BASE_MODEL] == "Qwen3"


class Own(trl.SFTTrainer):
    pass


@pytest.mark.parametrize(
    ("method", "make"),
    [
        ("GSPO", lambda model: grpo(model, importance_sampling_level="sequence")),
        ("RLOO", lambda model: online("RLOO", model, [])),
        ("SFT", lambda model: sft(model, [], trainer_class=Own)),
    ],
)
def test_method(method: str, make: Any, tiny_model: str) -> None:
    assert identity(make(tiny_model))[names.ATTR_RUN_METHOD] == method


# -- the hash of the settings


def test_equal_settings_have_an_equal_hash_wherever_and_however_they_run(tiny_model: str) -> None:
    elsewhere = {"output_dir": "/somewhere/else", "run_name": "second", "seed": 7, "logging_steps": 3, "save_steps": 9}
    assert identity(grpo(tiny_model))[SHA] == identity(grpo(tiny_model, **elsewhere))[SHA]


@pytest.mark.parametrize(
    "changed",
    [
        {"learning_rate": 2e-3},
        {"beta": 0.1},
        {"num_iterations": 2},
        {"temperature": 0.7},
        {"max_completion_length": 9},
        {"gradient_accumulation_steps": 4},
        {"loss_type": "grpo"},
        {"rewards": {letters: 1.0, penalty: 2.0}},
        {"rewards": {**REWARDS, penalty: 2.5}},
        {"trainer": {"peft_config": LoraConfig(r=4)}},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_a_changed_setting_changes_the_hash(changed: dict[str, Any], tiny_model: str) -> None:
    assert identity(grpo(tiny_model))[SHA] != identity(grpo(tiny_model, **changed))[SHA]


def test_a_changed_adapter_changes_the_hash(tiny_model: str) -> None:
    hashes = [
        identity(sft(tiny_model, [], trainer={"peft_config": LoraConfig(**settings)}))[SHA]
        for settings in (
            {"r": 4},
            {"r": 4},
            {"r": 5},
            {"r": 4, "lora_alpha": 9},
            {"r": 4, "target_modules": ["q_proj"]},
        )
    ]
    assert hashes[0] == hashes[1]
    assert len(set(hashes)) == 4


LEARNS = """
    learning_rate weight_decay adam_beta1 adam_beta2 adam_epsilon max_grad_norm max_steps num_train_epochs
    per_device_train_batch_size gradient_accumulation_steps lr_scheduler_type warmup_steps optim label_smoothing_factor
    bf16 num_generations num_iterations max_completion_length temperature top_p top_k beta epsilon epsilon_high
    loss_type scale_rewards reward_weights mask_truncated_completions importance_sampling_level steps_per_generation
    neftune_noise_alpha
""".split()
"""What changes what a GRPO training learns, on every TRL."""

REPORTS = """
    output_dir run_name report_to logging_steps logging_strategy logging_dir save_steps save_total_limit seed data_seed
    disable_tqdm log_level dataloader_num_workers push_to_hub hub_model_id log_completions chat_template_path
    chat_template_kwargs eval_steps per_device_eval_batch_size eval_on_start metric_for_best_model vllm_server_host
""".split()
"""What does not."""


def hash_of(args: Any) -> str:
    return settings_sha(hyperparameters(None, args, None))


def changed(args: Any, name: str) -> Any:
    """The arguments with one of them changed, whatever it means."""
    other, value = copy.copy(args), getattr(args, name)
    replaced = not value if isinstance(value, bool) else value + 1 if isinstance(value, (int, float)) else "changed"
    object.__setattr__(other, name, replaced)
    return other


@pytest.fixture(scope="module")
def arguments(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return trl.GRPOConfig(
        output_dir=str(tmp_path_factory.mktemp("run")), num_generations=4, use_cpu=True, bf16=False, report_to=[]
    )


@pytest.mark.parametrize("name", LEARNS)
def test_what_changes_the_learning_changes_the_hash(name: str, arguments: Any) -> None:
    assert hash_of(changed(arguments, name)) != hash_of(arguments)


@pytest.mark.parametrize("name", REPORTS)
def test_what_changes_the_reporting_does_not(name: str, arguments: Any) -> None:
    if not hasattr(arguments, name):
        pytest.skip(f"transformers has no {name} any more")
    assert hash_of(changed(arguments, name)) == hash_of(arguments)


@pytest.mark.parametrize("name", ["access_key", "apikey", "auth", "username", "address", "api_token"])
def test_secrets_within_arguments_do_not_change_the_hash(name: str, arguments: Any) -> None:
    """As hosts put them into their own arguments, or a user into those of the model."""
    other = copy.copy(arguments)
    other.model_init_kwargs = {name: "first"}
    another = copy.copy(arguments)
    another.model_init_kwargs = {name: "second"}
    assert hash_of(other) == hash_of(another)


def test_the_tokens_of_a_text_change_the_hash_and_those_of_the_hub_do_not() -> None:
    """transformers hides both alike."""
    with tempfile.TemporaryDirectory() as folder:
        settings = {"output_dir": folder, "use_cpu": True, "bf16": False, "report_to": []}
        configs = [trl.SFTConfig(**settings, **more) for more in ({}, {"hub_token": "hf_x"}, {"eos_token": "<end>"})]
    bare, of_the_hub, of_the_text = map(hash_of, configs)
    assert bare == of_the_hub
    assert bare != of_the_text
    assert "hf_x" not in str(hyperparameters(None, configs[1], None))


# -- on the resource of what is exported


def resource_of(run: Run) -> dict[str, Any]:
    """The one resource of all metrics and spans."""
    resources = [point.resource for point in run.sink.metrics()] + [span.resource for span in run.sink.spans()]
    assert resources
    assert all(resource == resources[0] for resource in resources)
    return dict(resources[0])


def test_the_configuration_and_the_machine_fill_the_resource(tiny_model: str) -> None:
    run = exported_run(lambda callbacks: sft(tiny_model, callbacks, max_steps=1))
    resource = resource_of(run)
    assert resource[names.ATTR_RUN_METHOD.name] == "SFT"
    assert resource[names.ATTR_RUN_LEARNING_RATE.name] == 1e-3
    assert resource[names.ATTR_RUN_ATTEMPT.name] == 1
    assert resource[names.ATTR_SERVICE_NAME.name] == "akka-training-job"
    run_id = resource[names.ATTR_RUN_ID.name]
    assert run_id.startswith("trl-")
    assert resource[names.ATTR_SERVICE_INSTANCE_ID.name] == f"{run_id}.1.0"
    assert len(resource[SHA.name]) == 16
    assert names.ATTR_RUN_LORA_RANK.name not in resource
    assert names.ATTR_PROJECT.name not in resource


def test_code_comes_before_the_environment_and_that_before_the_configuration(tiny_model: str) -> None:
    environment = {
        names.ATTR_RUN_ID.name: "from-environment",
        names.ATTR_PROJECT.name: "from-environment",
        names.ATTR_RUN_METHOD.name: "Distilled%20SFT",
        names.ATTR_RUN_LEARNING_RATE.name: "0.25",
        names.ATTR_RUN_ATTEMPT.name: "3",
        "team": "blue",
    }
    callback = AkkaTelemetryCallback(run_id="from-code", attempt=7, resource={"team": "red", "tier": 2})
    run = exported_run(
        lambda callbacks: sft(tiny_model, callbacks, max_steps=1),
        callback=callback,
        variables={
            "OTEL_RESOURCE_ATTRIBUTES": ",".join(f"{name}={value}" for name, value in environment.items()),
            "OTEL_SERVICE_NAME": "tuner",
            "POD_NAME": "pod-1",
        },
    )
    resource = resource_of(run)
    expected = {
        names.ATTR_RUN_ID.name: "from-code",
        names.ATTR_RUN_ATTEMPT.name: 7,
        names.ATTR_PROJECT.name: "from-environment",
        names.ATTR_WORKLOAD.name: "from-environment",
        names.ATTR_RUN_METHOD.name: "Distilled SFT",
        names.ATTR_RUN_LEARNING_RATE.name: 0.25,
        names.ATTR_SERVICE_NAME.name: "tuner",
        names.ATTR_SERVICE_INSTANCE_ID.name: "from-code.7.0",
        names.ATTR_K8S_POD_NAME.name: "pod-1",
        "team": "red",
        "tier": 2,
    }
    assert {name: resource.get(name) for name in expected} == expected


def test_two_trainings_of_one_callback_are_one_run(tiny_model: str) -> None:
    def twice(trainer: Trainer) -> None:
        trainer.train()
        trainer.train()

    run = exported_run(lambda callbacks: sft(tiny_model, callbacks, max_steps=1), twice, at_each_event=False)
    assert len({point.resource[names.ATTR_RUN_ID.name] for point in run.sink.metrics()}) == 1


def test_two_callbacks_are_two_runs(tiny_model: str) -> None:
    trainer = sft(tiny_model, [])  # seeds Python's random numbers, as every trainer does
    first = AkkaTelemetryCallback()._session.attempt()
    sft(tiny_model, [])
    assert trainer.args.seed == 1
    assert AkkaTelemetryCallback()._session.attempt().run_id != first.run_id


# -- spans


TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def test_spans_join_the_trace_that_started_the_run(tiny_model: str) -> None:
    run = exported_run(
        lambda callbacks: sft(tiny_model, callbacks, max_steps=2, eval_strategy="steps", eval_steps=1),
        variables={"TRACEPARENT": f"00-{TRACE}-{PARENT}-01", "TRACESTATE": "vendor=1"},
    )
    spans = run.sink.spans()
    (job,) = [span for span in spans if span.name == names.SPAN_JOB.name]
    evaluations = [span for span in spans if span.name == names.SPAN_EVAL.name]
    assert len(spans) == 3
    assert (job.trace_id, job.parent_span_id, job.trace_state) == (TRACE, PARENT, "vendor=1")
    runtimes = [row["eval_runtime"] for _, row in run.rows if "eval_runtime" in row]
    for span, seconds in zip(evaluations, runtimes, strict=True):
        assert (span.trace_id, span.parent_span_id) == (TRACE, job.span_id)
        assert (span.end_ns - span.start_ns) / 1e9 == pytest.approx(seconds, abs=1e-3)
        assert job.start_ns <= span.start_ns <= span.end_ns <= job.end_ns
    assert job.status == 0


@pytest.mark.parametrize("traceparent", ["", "00-nonsense", f"00-{TRACE}-{PARENT}"])
def test_without_a_trace_the_job_begins_one(traceparent: str, tiny_model: str) -> None:
    run = exported_run(
        lambda callbacks: sft(tiny_model, callbacks, max_steps=1),
        variables={"TRACEPARENT": traceparent},
        at_each_event=False,
    )
    (job,) = run.sink.spans()
    assert job.parent_span_id == ""
    assert int(job.trace_id, 16) != 0
    assert job.trace_id != TRACE
