#!/bin/bash
# Supervised fine-tuning on one machine, one process a GPU. What is ours is the last word of trainer.logger.
#
#   MODEL=Qwen/Qwen2.5-0.5B-Instruct DATA=~/data/chats GPUS=2 ./sft.sh
set -euo pipefail

export OTEL_EXPORTER_OTLP_ENDPOINT=${OTEL_EXPORTER_OTLP_ENDPOINT:-http://localhost:4318}
export OTEL_RESOURCE_ATTRIBUTES=${OTEL_RESOURCE_ATTRIBUTES:-akka.optimize.training.project=demo}

exec "${PYTHON:-python}" -m torch.distributed.run --standalone --nproc_per_node="${GPUS:-8}" -m verl.trainer.sft_trainer \
    data.train_files="${DATA:-$HOME/data/chats}/train.parquet" \
    data.val_files="${DATA:-$HOME/data/chats}/test.parquet" \
    data.messages_key=messages \
    data.train_batch_size=128 \
    data.micro_batch_size_per_gpu=4 \
    data.max_length=2048 \
    model.path="${MODEL:-Qwen/Qwen2.5-0.5B-Instruct}" \
    engine=fsdp \
    optim=fsdp \
    optim.lr=1e-5 \
    trainer.n_gpus_per_node="${GPUS:-8}" \
    trainer.nnodes=1 \
    trainer.total_epochs=1 \
    trainer.test_freq=50 \
    trainer.project_name=demo \
    trainer.experiment_name=sft \
    'trainer.logger=["console","akka_otel"]' \
    "$@"
