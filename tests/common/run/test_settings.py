"""Which settings make a training different: all but those of places, secrets, reports, evaluations and machines."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from akka_otel_callbacks.common.run.settings import relevant
from akka_otel_callbacks.common.run.settings_hash import settings_sha

NOTHING_LEARNED = """
    access_key access_key_id aws_secret_access_key apikey apiKey api_key API-KEY openai.api_key secret client_secret
    clientSecret auth auth_mode authorization authToken http_auth credentials password db_password dbpassword passphrase
    pwd token hf_token hub_token github_token use_auth_token api_tokens bearer cookie jwt signature X-Amz-Signature
    ssh_key private_key cert certificate keytab username user db_user email login entity organization
    address master_addr master_port host hosts hostname server_host port ports base_url baseUrl url urls endpoint proxy
    http_proxy ip dsn webhook socket path output_path model_path cache_dir outdir workdir directory folder train_files
    file_name filename bucket region
    logger logging_steps log_level log_freq console_log report_to verbose print_every wandb_project wandb_entity
    mlflow_tracking_uri tensorboard_dir trackio_space_id project project_name experiment_name run_name tags notes
    save_steps save_total_limit checkpoint ckpt_freq max_ckpt_to_keep resume_from_checkpoint push_to_hub hub_model_id
    eval_steps eval_strategy do_eval per_device_eval_batch_size val_batch_size val_before_train test_freq
    validation_shuffle metric_for_best_model load_best_model_at_end
    chat_template chat_template_path chat_template_kwargs custom_chat_template
    num_workers dataset_num_proc ddp_timeout nccl_timeout seed data_seed device local_rank nnodes n_gpus_per_node
""".split()

LEARNED = """
    learning_rate lr betas weight_decay num_train_epochs max_steps total_training_steps max_grad_norm clip_grad eps
    per_device_train_batch_size gradient_accumulation_steps train_batch_size ppo_mini_batch_size ppo_epochs optim
    lr_scheduler_type warmup_steps bf16 dtype num_generations n rollout_n temperature top_p top_k max_tokens
    max_new_tokens max_completion_length max_response_length max_token_len_per_gpu response_length beta kl_coef
    kl_loss_type use_kl_loss epsilon epsilon_high clip_ratio clip_ratio_high loss_type loss_agg_mode adv_estimator
    scale_rewards reward_weights importance_sampling_level mask_truncated_completions packing padding_free
    lora_rank r lora_alpha lora_dropout target_modules modules_to_save lora_modules_to_save
    eos_token pad_token stop_token special_tokens num_virtual_tokens prompt_key response_key image_key reward_fn_key
    calculate_log_probs log_prob_min_clamp precompute_ref_log_probs max_user_turns drop_path_rate dropout
    shuffle truncation train_max_samples dataloader_drop_last neftune_noise_alpha label_smoothing_factor author_weight
    label_pad_token_id num_iterations total_epochs critic_warmup gamma lam export support_fraction
""".split()

VALUE = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text("abc", max_size=4)
SETTINGS = st.dictionaries(st.sampled_from(LEARNED), VALUE | st.lists(VALUE, max_size=2), max_size=4)


def sha(settings: Any) -> str:
    return settings_sha(relevant(settings))


def nested(settings: dict, depth: int, **more: Any) -> dict:
    """The settings beside more, within lists and mappings."""
    inner: Any = {**settings, **more}
    for level in range(depth):
        inner = {"optim_args": inner} if level % 2 else {"reward_models": [1, inner]}
    return inner


@settings(max_examples=500)
@given(st.sampled_from(NOTHING_LEARNED), SETTINGS, st.integers(0, 4), VALUE, VALUE)
def test_what_says_nothing_of_the_training_never_changes_the_hash(
    name: str, learned: dict, depth: int, one: Any, other: Any
) -> None:
    bare = sha(nested(learned, depth))
    assert sha(nested(learned, depth, **{name: one})) == bare
    assert sha(nested(learned, depth, **{name: {"inner": other}})) == bare
    assert sha(nested(learned, depth, **{f"my_{name}": one})) == bare


@settings(max_examples=500)
@given(st.sampled_from(LEARNED), SETTINGS, st.integers(0, 4), VALUE)
def test_what_is_learned_from_always_changes_it(name: str, learned: dict, depth: int, value: Any) -> None:
    learned.pop(name, None)
    with_value = sha(nested(learned, depth, **{name: value}))
    assert with_value != sha(nested(learned, depth))
    assert with_value != sha(nested(learned, depth, **{name: "something else"}))


def test_every_name_is_told() -> None:
    assert [name for name in NOTHING_LEARNED if relevant({name: 1})] == []
    assert [name for name in LEARNED if not relevant({name: 1})] == []


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("/home/me/ds.json", "/mnt/other/ds.json"),
        ("~/ds.json", "./config/ds.json"),
        ("https://me:token@host/judge", "https://other:secret@elsewhere:8000/v1/judge?key=1"),
        (r"C:\me\ds.json", "/home/me/ds.json"),
    ],
)
def test_of_a_place_only_its_last_part_counts_under_any_name(one: str, other: str) -> None:
    assert sha({"deepspeed": one, "list": [one]}) == sha({"deepspeed": other, "list": [other]})
    assert sha({"deepspeed": one}) != sha({"deepspeed": "/home/me/another"})


def test_a_sentence_with_a_url_is_no_place() -> None:
    first, second = (f"You are {who}. See https://example.org/rules" for who in ("A", "B"))
    assert sha({"system_prompt": first}) != sha({"system_prompt": second})


def test_a_dataclass_within_is_read_like_a_mapping() -> None:
    @dataclasses.dataclass
    class Judge:
        temperature: float = 1.0
        api_key: str = ""

    assert sha({"judge": Judge()}) == sha({"judge": Judge(api_key="secret")})
    assert sha({"judge": Judge()}) != sha({"judge": Judge(temperature=0.5)})
