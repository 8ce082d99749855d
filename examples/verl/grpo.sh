#!/bin/bash
# GRPO on one machine. What is ours is the last word of trainer.logger; what follows "$@" is yours to choose.
#
#   MODEL=Qwen/Qwen2.5-0.5B-Instruct DATA=~/data/gsm8k ./grpo.sh trainer.n_gpus_per_node=2
set -euo pipefail

# Where the figures go, by OpenTelemetry's own variables. Without any of them they go to files under akka-otel/.
export OTEL_EXPORTER_OTLP_ENDPOINT=${OTEL_EXPORTER_OTLP_ENDPOINT:-http://localhost:4318}
# Who the run is. Without it the run gets an ID of its own.
export OTEL_RESOURCE_ATTRIBUTES=${OTEL_RESOURCE_ATTRIBUTES:-akka.optimize.training.project=demo}

exec "${PYTHON:-python}" -m verl.trainer.main_ppo \
    algorithm.adv_estimator=grpo \
    data.train_files="${DATA:-$HOME/data/gsm8k}/train.parquet" \
    data.val_files="${DATA:-$HOME/data/gsm8k}/test.parquet" \
    data.train_batch_size=256 \
    data.max_prompt_length=512 \
    data.max_response_length=1024 \
    actor_rollout_ref.model.path="${MODEL:-Qwen/Qwen2.5-0.5B-Instruct}" \
    actor_rollout_ref.actor.optim.lr=1e-6 \
    actor_rollout_ref.actor.ppo_mini_batch_size=64 \
    actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=8 \
    actor_rollout_ref.actor.use_kl_loss=True \
    actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=16 \
    actor_rollout_ref.rollout.name=vllm \
    actor_rollout_ref.rollout.n=8 \
    actor_rollout_ref.rollout.tensor_model_parallel_size=1 \
    actor_rollout_ref.rollout.gpu_memory_utilization=0.5 \
    actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=16 \
    actor_rollout_ref.rollout.disable_log_stats=False `# vLLM's own metrics, with the run's labels` \
    trainer.n_gpus_per_node=8 \
    trainer.nnodes=1 \
    trainer.total_epochs=1 \
    trainer.project_name=demo \
    trainer.experiment_name=grpo \
    'trainer.logger=["console","akka_otel"]' \
    "$@"
