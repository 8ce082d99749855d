"""Every name of the telemetry registry, typed. Generated from registry/, do not edit: run `make generate`."""

from __future__ import annotations

from typing import Final

from akka_otel_callbacks.common.vocabulary.metric import Attribute, Event, Kind, Metric, Span

PREFIX: Final = "akka.optimize.training."
"""What every name of this project begins with."""

# Well-known attribute values.


class CheckpointArtifactKind:
    FULL_STATE: Final = "full_state"
    ADAPTER: Final = "adapter"


class CheckpointFailureReason:
    VALIDATION: Final = "validation"
    TRANSFER: Final = "transfer"
    CATALOG: Final = "catalog"
    CONFLICT: Final = "conflict"
    INTERNAL: Final = "internal"


class CheckpointOperation:
    STAGE: Final = "stage"
    PUBLISH: Final = "publish"
    UPLOAD: Final = "upload"
    CATALOG_RESERVE: Final = "catalog_reserve"
    CATALOG_ACKNOWLEDGE: Final = "catalog_acknowledge"
    MATERIALIZE: Final = "materialize"
    VALIDATE: Final = "validate"


class CheckpointOutcome:
    SUCCESS: Final = "success"
    FAILURE: Final = "failure"


class CheckpointRestoreMode:
    RESUME: Final = "resume"
    BRANCH: Final = "branch"


class CheckpointStorageMode:
    OBJECT_STORE: Final = "object_store"
    SHARED_FILESYSTEM: Final = "shared_filesystem"


class GpuClockDomain:
    SM: Final = "sm"
    MEMORY: Final = "memory"


class GpuXidCause:
    APPLICATION: Final = "application"
    HARDWARE: Final = "hardware"
    INFORMATIONAL: Final = "informational"
    UNKNOWN: Final = "unknown"


class JobPauseCause:
    EVALUATING: Final = "evaluating"
    CHECKPOINTING: Final = "checkpointing"


class JobRole:
    ACTOR: Final = "actor"
    ROLLOUT: Final = "rollout"
    REF: Final = "ref"
    ACTOR_ROLLOUT: Final = "actor_rollout"
    ACTOR_ROLLOUT_REF: Final = "actor_rollout_ref"
    TRAINER: Final = "trainer"


class MemoryComponent:
    WEIGHTS: Final = "weights"
    ADAPTER: Final = "adapter"
    GRADIENTS: Final = "gradients"
    OPTIMIZER: Final = "optimizer"
    ACTIVATIONS: Final = "activations"
    GENERATION: Final = "generation"
    OTHER: Final = "other"
    ALLOCATOR: Final = "allocator"
    EXTERNAL: Final = "external"
    FREE: Final = "free"


class PausePolicy:
    FRESH: Final = "fresh"
    LATEST: Final = "latest"


class TelemetryReason:
    OVERFLOW: Final = "overflow"
    FAILED: Final = "failed"
    THINNED: Final = "thinned"
    REJECTED: Final = "rejected"


class ReplayFormat:
    TRAINER_STATE: Final = "trainer_state"
    TENSORBOARD: Final = "tensorboard"
    VERL_FILE: Final = "verl_file"
    VERL_CONSOLE: Final = "verl_console"


class ReplayTimes:
    LOGGED: Final = "logged"
    ASSUMED: Final = "assumed"


class RlGraderFailureCause:
    TIMEOUT: Final = "timeout"
    UNAVAILABLE: Final = "unavailable"
    UNREADABLE: Final = "unreadable"
    UNGRADABLE: Final = "ungradable"


class RlGraderTokenType:
    INPUT: Final = "input"
    OUTPUT: Final = "output"


class RlRole:
    TRAINER: Final = "trainer"
    ROLLOUT: Final = "rollout"


class RlStepPhase:
    GEN: Final = "gen"
    REWARD: Final = "reward"
    ADV: Final = "adv"
    OLD_LOG_PROB: Final = "old_log_prob"
    REF: Final = "ref"
    VALUES: Final = "values"
    UPDATE_CRITIC: Final = "update_critic"
    UPDATE_ACTOR: Final = "update_actor"
    UPDATE_WEIGHTS: Final = "update_weights"
    TESTING: Final = "testing"
    SAVE_CHECKPOINT: Final = "save_checkpoint"
    STEP: Final = "step"
    DUMP_ROLLOUT_GENERATIONS: Final = "dump_rollout_generations"
    GENERATE_ASYNC: Final = "generate_async"
    PARAM_SYNC: Final = "param_sync"
    SYNC_ROLLOUT_WEIGHTS: Final = "sync_rollout_weights"
    SWITCH_TO_TRAINER: Final = "switch_to_trainer"
    SWITCH_TO_ROLLOUT: Final = "switch_to_rollout"
    SWITCH_WAIT: Final = "switch_wait"
    WAIT_FOR_ENOUGH_SAMPLES: Final = "wait_for_enough_samples"


class RlTerm:
    TOTAL: Final = "total"
    JSON_LABEL_MATCH: Final = "json-label-match"


class RunEngine:
    TRL: Final = "trl"
    VERL: Final = "verl"


class RunMethod:
    SFT: Final = "SFT"


class RunOutcome:
    COMPLETED: Final = "completed"
    FAILED: Final = "failed"
    CANCELLED: Final = "cancelled"


class RunPhase:
    RESOLVING_DATASET: Final = "RESOLVING_DATASET"
    PREPARING_MODEL: Final = "PREPARING_MODEL"
    DEPLOYING_GRADER: Final = "DEPLOYING_GRADER"
    AWAITING_GRADER: Final = "AWAITING_GRADER"
    AWAITING_DEVICES: Final = "AWAITING_DEVICES"
    SUBMITTING: Final = "SUBMITTING"
    QUEUED: Final = "QUEUED"
    PREPARING: Final = "PREPARING"
    TRAINING: Final = "TRAINING"
    PAUSING: Final = "PAUSING"
    PAUSED: Final = "PAUSED"
    REGISTERING: Final = "REGISTERING"
    CLEANING_UP: Final = "CLEANING_UP"
    COMPLETED: Final = "COMPLETED"
    FAILED: Final = "FAILED"
    CANCELLED: Final = "CANCELLED"


class PipelineStageOutcome:
    COMPLETED: Final = "completed"
    FAILED: Final = "failed"


class PipelineStageType:
    CURATE: Final = "curate"
    TRAIN: Final = "train"
    EVALUATE: Final = "evaluate"


class ClaimState:
    GRANTED: Final = "GRANTED"
    QUEUED: Final = "QUEUED"


class ServiceFailureReason:
    VALIDATION: Final = "validation"
    CONFLICT: Final = "conflict"
    RETENTION: Final = "retention"
    PROVIDER: Final = "provider"
    EXPORT: Final = "export"
    CATALOG: Final = "catalog"
    DEADLINE: Final = "deadline"
    INTERNAL: Final = "internal"


class ServiceOperation:
    PAUSE: Final = "pause"
    BRANCH: Final = "branch"
    PROMOTE: Final = "promote"
    PUBLISH: Final = "publish"
    DELETE: Final = "delete"
    HOLD: Final = "hold"
    COMPARE: Final = "compare"


class ServiceOutcome:
    SUCCEEDED: Final = "succeeded"
    FAILED: Final = "failed"
    REJECTED: Final = "rejected"
    TIMED_OUT: Final = "timed_out"
    UNKNOWN: Final = "unknown"
    RETAINED: Final = "retained"


class ServiceStage:
    ACCEPT: Final = "accept"
    ACKNOWLEDGE: Final = "acknowledge"
    RELEASE: Final = "release"
    RETAIN: Final = "retain"
    START: Final = "start"
    EXPORT: Final = "export"
    REGISTER: Final = "register"
    VERIFY: Final = "verify"
    COMMIT: Final = "commit"
    DELETE: Final = "delete"
    EVALUATE: Final = "evaluate"
    NOTIFY: Final = "notify"


class SftDataFit:
    TOTAL: Final = "total"
    TRUNCATED: Final = "truncated"
    FULL: Final = "full"
    DROPPED: Final = "dropped"


class SftStepPhase:
    INPUT: Final = "input"
    FORWARD_BACKWARD: Final = "forward_backward"
    OPTIMIZER: Final = "optimizer"
    STEP: Final = "step"
    EVAL: Final = "eval"
    SAVE_CHECKPOINT: Final = "save_checkpoint"


class ErrorType:
    CORRECTED: Final = "corrected"
    UNCORRECTED: Final = "uncorrected"


class HwState:
    OK: Final = "ok"
    DEGRADED: Final = "degraded"
    FAILED: Final = "failed"
    PREDICTED_FAILURE: Final = "predicted_failure"


class HwType:
    GPU: Final = "gpu"


class HwGpuTask:
    GENERAL: Final = "general"


class HwSensorLocation:
    GPU: Final = "gpu"
    MEMORY: Final = "memory"


# Attributes.

ATTR_CHECKPOINT_ARTIFACT_KIND: Final = Attribute(
    "akka.optimize.training.checkpoint.artifact.kind",
    str,
    "What the checkpoint holds.",
    values=(
        "full_state",
        "adapter",
    ),
)
ATTR_CHECKPOINT_FAILURE_REASON: Final = Attribute(
    "akka.optimize.training.checkpoint.failure.reason",
    str,
    "Why a checkpoint operation failed, as a bounded category.",
    values=(
        "validation",
        "transfer",
        "catalog",
        "conflict",
        "internal",
    ),
)
ATTR_CHECKPOINT_OPERATION: Final = Attribute(
    "akka.optimize.training.checkpoint.operation",
    str,
    "The checkpoint operation that was measured.",
    values=(
        "stage",
        "publish",
        "upload",
        "catalog_reserve",
        "catalog_acknowledge",
        "materialize",
        "validate",
    ),
)
ATTR_CHECKPOINT_OUTCOME: Final = Attribute(
    "akka.optimize.training.checkpoint.outcome",
    str,
    "Whether the checkpoint operation completed.",
    values=(
        "success",
        "failure",
    ),
)
ATTR_CHECKPOINT_RESTORE_MODE: Final = Attribute(
    "akka.optimize.training.checkpoint.restore.mode",
    str,
    "Why the job restores a checkpoint.",
    values=(
        "resume",
        "branch",
    ),
)
ATTR_CHECKPOINT_SNAPSHOT_ID: Final = Attribute(
    "akka.optimize.training.checkpoint.snapshot.id",
    str,
    "Identifier of the snapshot, derived from its content.",
)
ATTR_CHECKPOINT_SOURCE_ATTEMPT: Final = Attribute(
    "akka.optimize.training.checkpoint.source.attempt",
    int,
    "Attempt that produced the restored snapshot.",
)
ATTR_CHECKPOINT_SOURCE_ENGINE_STEP: Final = Attribute(
    "akka.optimize.training.checkpoint.source.engine_step",
    int,
    "Engine step at which the restored snapshot was produced.",
)
ATTR_CHECKPOINT_SOURCE_RUN_ID: Final = Attribute(
    "akka.optimize.training.checkpoint.source.run_id",
    str,
    "Run that produced the restored snapshot.",
)
ATTR_CHECKPOINT_STORAGE_MODE: Final = Attribute(
    "akka.optimize.training.checkpoint.storage.mode",
    str,
    "How checkpoint artifacts are transported.",
    values=(
        "object_store",
        "shared_filesystem",
    ),
)
ATTR_EVAL_DATASET: Final = Attribute(
    "akka.optimize.training.eval.dataset",
    str,
    "The name of the set that was evaluated.",
)
ATTR_GPU_CLOCK_DOMAIN: Final = Attribute(
    "akka.optimize.training.gpu.clock.domain",
    str,
    "The clock that a frequency was measured on.",
    values=(
        "sm",
        "memory",
    ),
)
ATTR_GPU_DERIVED: Final = Attribute(
    "akka.optimize.training.gpu.derived",
    bool,
    "Whether the GPU time was estimated from the start and end of the job.",
)
ATTR_GPU_XID: Final = Attribute(
    "akka.optimize.training.gpu.xid",
    int,
    "The driver's code of a GPU fault, on the log record of that fault.",
)
ATTR_GPU_XID_CAUSE: Final = Attribute(
    "akka.optimize.training.gpu.xid.cause",
    str,
    "Where to look first for the cause of an XID.",
    values=(
        "application",
        "hardware",
        "informational",
        "unknown",
    ),
)
ATTR_JOB_PAUSE_CAUSE: Final = Attribute(
    "akka.optimize.training.job.pause.cause",
    str,
    "What a job does while it makes no step.",
    values=(
        "evaluating",
        "checkpointing",
    ),
)
ATTR_JOB_RANK: Final = Attribute(
    "akka.optimize.training.job.rank",
    int,
    "Rank of the worker process in the engine's worker group, from 0.",
)
ATTR_JOB_ROLE: Final = Attribute(
    "akka.optimize.training.job.role",
    str,
    "The roles that the worker process holds, under the engine's own name for them.",
    values=(
        "actor",
        "rollout",
        "ref",
        "actor_rollout",
        "actor_rollout_ref",
        "trainer",
    ),
)
ATTR_JOB_SUBMISSION_ID: Final = Attribute(
    "akka.optimize.training.job.submission_id",
    str,
    "Identifier that the compute cluster assigned to the submission of this attempt.",
)
ATTR_MEMORY_COMPONENT: Final = Attribute(
    "akka.optimize.training.memory.component",
    str,
    "What a part of the device's memory held at the peak of a step.",
    values=(
        "weights",
        "adapter",
        "gradients",
        "optimizer",
        "activations",
        "generation",
        "other",
        "allocator",
        "external",
        "free",
    ),
)
ATTR_PAUSE_POLICY: Final = Attribute(
    "akka.optimize.training.pause.policy",
    str,
    "Which checkpoint a pause request asked for.",
    values=(
        "fresh",
        "latest",
    ),
)
ATTR_TELEMETRY_METRIC: Final = Attribute(
    "akka.optimize.training.telemetry.metric",
    str,
    "The metric that a figure belonged to, by its full name.",
)
ATTR_TELEMETRY_REASON: Final = Attribute(
    "akka.optimize.training.telemetry.reason",
    str,
    "Why a step has no points of its own.",
    values=(
        "overflow",
        "failed",
        "thinned",
        "rejected",
    ),
)
ATTR_REPLAY_FORMAT: Final = Attribute(
    "akka.optimize.training.replay.format",
    str,
    "The format of the log that a past run was read from.",
    values=(
        "trainer_state",
        "tensorboard",
        "verl_file",
        "verl_console",
    ),
)
ATTR_REPLAY_TIMES: Final = Attribute(
    "akka.optimize.training.replay.times",
    str,
    "Where the times of a past run's steps are from.",
    values=(
        "logged",
        "assumed",
    ),
)
ATTR_RL_GRADER_FAILURE_CAUSE: Final = Attribute(
    "akka.optimize.training.rl.grader.failure.cause",
    str,
    "Why a reward term's call gave no score.",
    values=(
        "timeout",
        "unavailable",
        "unreadable",
        "ungradable",
    ),
)
ATTR_RL_GRADER_TOKEN_TYPE: Final = Attribute(
    "akka.optimize.training.rl.grader.token.type",
    str,
    "Whether the judge read or wrote the tokens.",
    values=(
        "input",
        "output",
    ),
)
ATTR_RL_ROLE: Final = Attribute(
    "akka.optimize.training.rl.role",
    str,
    "The role of a process in a disaggregated reinforcement loop.",
    values=(
        "trainer",
        "rollout",
    ),
)
ATTR_RL_STEP_PHASE: Final = Attribute(
    "akka.optimize.training.rl.step.phase",
    str,
    "The phase of a step that a time was measured over, under the engine's own name.",
)
ATTR_RL_TERM: Final = Attribute(
    "akka.optimize.training.rl.term",
    str,
    "The declared reward term: a rule by file name, a judge by model, a built-in, or `total`.",
)
ATTR_RUN_ATTEMPT: Final = Attribute(
    "akka.optimize.training.run.attempt",
    int,
    "Attempt of the run, counted from 1; a paused or restarted run resumes as the next one.",
)
ATTR_RUN_BASE_MODEL: Final = Attribute(
    "akka.optimize.training.run.base_model",
    str,
    "The base model that the run trains.",
)
ATTR_RUN_ENGINE: Final = Attribute(
    "akka.optimize.training.run.engine",
    str,
    "The training engine that executes the run.",
)
ATTR_RUN_GROUP_SIZE: Final = Attribute(
    "akka.optimize.training.run.group_size",
    int,
    "Completions generated per prompt in a reinforcement run.",
)
ATTR_RUN_ID: Final = Attribute(
    "akka.optimize.training.run.id",
    str,
    "Unique identifier of the training run.",
)
ATTR_RUN_LEARNING_RATE: Final = Attribute(
    "akka.optimize.training.run.learning_rate",
    float,
    "The learning rate that the run is configured with.",
)
ATTR_RUN_LORA_RANK: Final = Attribute(
    "akka.optimize.training.run.lora_rank",
    int,
    "Rank of the LoRA adapter that the run trains.",
)
ATTR_RUN_METHOD: Final = Attribute(
    "akka.optimize.training.run.method",
    str,
    "The training method: a reinforcement algorithm, or `SFT`.",
)
ATTR_RUN_NAME: Final = Attribute(
    "akka.optimize.training.run.name",
    str,
    "The name that people know the run by.",
)
ATTR_RUN_OUTCOME: Final = Attribute(
    "akka.optimize.training.run.outcome",
    str,
    "How a training run ended.",
    values=(
        "completed",
        "failed",
        "cancelled",
    ),
)
ATTR_RUN_PHASE: Final = Attribute(
    "akka.optimize.training.run.phase",
    str,
    "The phase of the run's life.",
    values=(
        "RESOLVING_DATASET",
        "PREPARING_MODEL",
        "DEPLOYING_GRADER",
        "AWAITING_GRADER",
        "AWAITING_DEVICES",
        "SUBMITTING",
        "QUEUED",
        "PREPARING",
        "TRAINING",
        "PAUSING",
        "PAUSED",
        "REGISTERING",
        "CLEANING_UP",
        "COMPLETED",
        "FAILED",
        "CANCELLED",
    ),
)
ATTR_RUN_SETTINGS_SHA: Final = Attribute(
    "akka.optimize.training.run.settings_sha",
    str,
    "Hash of the run's hyperparameters; equal for equal settings.",
)
ATTR_PROJECT: Final = Attribute(
    "akka.optimize.training.project",
    str,
    "The training project that the run belongs to.",
)
ATTR_WORKLOAD: Final = Attribute(
    "akka.optimize.training.workload",
    str,
    "The older name of the training project, with the same value.",
)
ATTR_PROFILE: Final = Attribute(
    "akka.optimize.training.profile",
    str,
    "The backend profile that configures the training cluster and the serving environment.",
)
ATTR_PIPELINE_ID: Final = Attribute(
    "akka.optimize.training.pipeline.id",
    str,
    "Unique identifier of the pipeline that started the run.",
)
ATTR_PIPELINE_STAGE_NAME: Final = Attribute(
    "akka.optimize.training.pipeline.stage.name",
    str,
    "Name of the pipeline stage that started the run, as the pipeline declares it.",
)
ATTR_PIPELINE_STAGE_OUTCOME: Final = Attribute(
    "akka.optimize.training.pipeline.stage.outcome",
    str,
    "How the pipeline stage ended.",
    values=(
        "completed",
        "failed",
    ),
)
ATTR_PIPELINE_STAGE_TYPE: Final = Attribute(
    "akka.optimize.training.pipeline.stage.type",
    str,
    "The kind of the pipeline stage.",
    values=(
        "curate",
        "train",
        "evaluate",
    ),
)
ATTR_CLAIM_STATE: Final = Attribute(
    "akka.optimize.training.claim.state",
    str,
    "Whether an active claim holds its devices or waits for them.",
    values=(
        "GRANTED",
        "QUEUED",
    ),
)
ATTR_INSTANCE: Final = Attribute(
    "akka.optimize.training.instance",
    str,
    "The instance that reported the figure: the pod that it runs as.",
)
ATTR_POOL_ACCELERATOR: Final = Attribute(
    "akka.optimize.training.pool.accelerator",
    str,
    "The device profile that the pool states its capacity for, or `any`.",
)
ATTR_POOL_SERVING: Final = Attribute(
    "akka.optimize.training.pool.serving",
    bool,
    "Whether the pool is the one that serving endpoints draw from.",
)
ATTR_SERVICE_FAILURE_REASON: Final = Attribute(
    "akka.optimize.training.service.failure.reason",
    str,
    "Why a service operation did not succeed, as a bounded category.",
    values=(
        "validation",
        "conflict",
        "retention",
        "provider",
        "export",
        "catalog",
        "deadline",
        "internal",
    ),
)
ATTR_SERVICE_OPERATION: Final = Attribute(
    "akka.optimize.training.service.operation",
    str,
    "The durable operation of the service.",
    values=(
        "pause",
        "branch",
        "promote",
        "publish",
        "delete",
        "hold",
        "compare",
    ),
)
ATTR_SERVICE_OUTCOME: Final = Attribute(
    "akka.optimize.training.service.outcome",
    str,
    "The result of a service operation or attempt.",
    values=(
        "succeeded",
        "failed",
        "rejected",
        "timed_out",
        "unknown",
        "retained",
    ),
)
ATTR_SERVICE_STAGE: Final = Attribute(
    "akka.optimize.training.service.stage",
    str,
    "The stage within the service operation.",
    values=(
        "accept",
        "acknowledge",
        "release",
        "retain",
        "start",
        "export",
        "register",
        "verify",
        "commit",
        "delete",
        "evaluate",
        "notify",
    ),
)
ATTR_SFT_DATA_FIT: Final = Attribute(
    "akka.optimize.training.sft.data.fit",
    str,
    "How training rows fit the run's maximum length.",
    values=(
        "total",
        "truncated",
        "full",
        "dropped",
    ),
)
ATTR_SFT_STEP_PHASE: Final = Attribute(
    "akka.optimize.training.sft.step.phase",
    str,
    "The phase of the supervised loop that a time was measured over.",
    values=(
        "input",
        "forward_backward",
        "optimizer",
        "step",
        "eval",
        "save_checkpoint",
    ),
)
ATTR_SPAN_UNFINISHED: Final = Attribute(
    "akka.optimize.training.span.unfinished",
    bool,
    "Whether the span was still open when the job ended.",
)
ATTR_SPAN_STEP: Final = Attribute(
    "akka.optimize.training.span.step",
    int,
    "The engine's own number of the span's step.",
)
ATTR_ERROR_TYPE: Final = Attribute(
    "error.type",
    str,
    "Whether a memory error was corrected.",
    values=(
        "corrected",
        "uncorrected",
    ),
)
ATTR_HW_ID: Final = Attribute(
    "hw.id",
    str,
    "UUID of the GPU, as NVML reports it.",
)
ATTR_HW_NAME: Final = Attribute(
    "hw.name",
    str,
    "Product name of the GPU, as NVML reports it.",
)
ATTR_HW_MODEL: Final = Attribute(
    "hw.model",
    str,
    "Model of the GPU, NVIDIA's product name of the whole GPU.",
)
ATTR_HW_VENDOR: Final = Attribute(
    "hw.vendor",
    str,
    "Vendor of the GPU.",
)
ATTR_HW_DRIVER_VERSION: Final = Attribute(
    "hw.driver_version",
    str,
    "Version of the driver that the GPU runs with.",
)
ATTR_HW_STATE: Final = Attribute(
    "hw.state",
    str,
    "The operational state of the GPU, of several the gravest.",
    values=(
        "ok",
        "degraded",
        "failed",
        "predicted_failure",
    ),
)
ATTR_HW_TYPE: Final = Attribute(
    "hw.type",
    str,
    "The kind of hardware component.",
    values=("gpu",),
)
ATTR_HW_GPU_TASK: Final = Attribute(
    "hw.gpu.task",
    str,
    "The kind of work that the GPU was busy with.",
    values=("general",),
)
ATTR_HW_SENSOR_LOCATION: Final = Attribute(
    "hw.sensor_location",
    str,
    "Where the sensor sits.",
    values=(
        "gpu",
        "memory",
    ),
)
ATTR_HOST_NAME: Final = Attribute(
    "host.name",
    str,
    "Name of the host that the process runs on.",
)
ATTR_K8S_NODE_NAME: Final = Attribute(
    "k8s.node.name",
    str,
    "Name of the Kubernetes node that the process runs on.",
)
ATTR_K8S_POD_NAME: Final = Attribute(
    "k8s.pod.name",
    str,
    "Name of the Kubernetes pod that the process runs in.",
)
ATTR_PROCESS_PID: Final = Attribute(
    "process.pid",
    int,
    "Process ID.",
)
ATTR_SERVICE_INSTANCE_ID: Final = Attribute(
    "service.instance.id",
    str,
    "Unique identifier of the process that emits the signal.",
)
ATTR_SERVICE_NAME: Final = Attribute(
    "service.name",
    str,
    "Name of the service that emits the signal.",
)

# Metrics.

CHECKPOINT_OPERATION_DURATION: Final = Metric(
    "akka.optimize.training.checkpoint.operation.duration",
    Kind.HISTOGRAM,
    "s",
    "Duration of one attempt at a checkpoint operation.",
    attributes=(
        ATTR_CHECKPOINT_OPERATION,
        ATTR_CHECKPOINT_OUTCOME,
        ATTR_CHECKPOINT_ARTIFACT_KIND,
        ATTR_CHECKPOINT_STORAGE_MODE,
        ATTR_CHECKPOINT_FAILURE_REASON,
    ),
    buckets=(
        0.05,
        0.1,
        0.5,
        1.0,
        2.5,
        5.0,
        10.0,
        30.0,
        60.0,
        120.0,
        300.0,
        600.0,
        1800.0,
    ),
)
CHECKPOINT_PENDING: Final = Metric(
    "akka.optimize.training.checkpoint.pending",
    Kind.GAUGE,
    "{snapshot}",
    "Staged snapshots that still await durable publication.",
)
CHECKPOINT_TRANSFER_SIZE: Final = Metric(
    "akka.optimize.training.checkpoint.transfer.size",
    Kind.HISTOGRAM,
    "By",
    "Bytes that one checkpoint transfer moved.",
    attributes=(
        ATTR_CHECKPOINT_OPERATION,
        ATTR_CHECKPOINT_ARTIFACT_KIND,
        ATTR_CHECKPOINT_STORAGE_MODE,
        ATTR_CHECKPOINT_OUTCOME,
    ),
    buckets=(
        1048576.0,
        4194304.0,
        16777216.0,
        67108864.0,
        268435456.0,
        1073741824.0,
        4294967296.0,
        17179869184.0,
        68719476736.0,
        274877906944.0,
    ),
)
HW_POWER: Final = Metric(
    "hw.power",
    Kind.GAUGE,
    "W",
    "Power that the GPU drew, averaged since the previous export.",
    attributes=(
        ATTR_HW_ID,
        ATTR_HW_NAME,
        ATTR_HW_TYPE,
    ),
)
HW_ENERGY: Final = Metric(
    "hw.energy",
    Kind.COUNTER,
    "J",
    "Energy that the GPU has used since the job started watching it.",
    attributes=(
        ATTR_HW_ID,
        ATTR_HW_NAME,
        ATTR_HW_TYPE,
    ),
)
HW_TEMPERATURE: Final = Metric(
    "hw.temperature",
    Kind.GAUGE,
    "Cel",
    "Temperature of the GPU at the latest sample, by sensor.",
    attributes=(
        ATTR_HW_ID,
        ATTR_HW_NAME,
        ATTR_HW_TYPE,
        ATTR_HW_SENSOR_LOCATION,
    ),
)
HW_GPU_UTILIZATION: Final = Metric(
    "hw.gpu.utilization",
    Kind.GAUGE,
    "1",
    "Fraction of time that the GPU ran a kernel, averaged since the previous export.",
    attributes=(
        ATTR_HW_ID,
        ATTR_HW_NAME,
        ATTR_HW_GPU_TASK,
    ),
)
HW_GPU_MEMORY_USAGE: Final = Metric(
    "hw.gpu.memory.usage",
    Kind.UPDOWNCOUNTER,
    "By",
    "Memory of the GPU in use at the latest sample.",
    attributes=(
        ATTR_HW_ID,
        ATTR_HW_NAME,
    ),
)
HW_GPU_MEMORY_LIMIT: Final = Metric(
    "hw.gpu.memory.limit",
    Kind.UPDOWNCOUNTER,
    "By",
    "Memory that the GPU has.",
    attributes=(
        ATTR_HW_ID,
        ATTR_HW_NAME,
        ATTR_HW_MODEL,
        ATTR_HW_VENDOR,
        ATTR_HW_DRIVER_VERSION,
    ),
)
HW_GPU_MEMORY_UTILIZATION: Final = Metric(
    "hw.gpu.memory.utilization",
    Kind.GAUGE,
    "1",
    "Fraction of the GPU's memory in use at the latest sample.",
    attributes=(
        ATTR_HW_ID,
        ATTR_HW_NAME,
    ),
)
HW_STATUS: Final = Metric(
    "hw.status",
    Kind.UPDOWNCOUNTER,
    "1",
    "1 for the state that the whole GPU is in, 0 for each of the other states.",
    attributes=(
        ATTR_HW_ID,
        ATTR_HW_NAME,
        ATTR_HW_TYPE,
        ATTR_HW_STATE,
        ATTR_HW_MODEL,
        ATTR_HW_VENDOR,
        ATTR_HW_DRIVER_VERSION,
    ),
)
HW_ERRORS: Final = Metric(
    "hw.errors",
    Kind.COUNTER,
    "{error}",
    "ECC memory errors of the GPU since the job started watching it, by kind.",
    attributes=(
        ATTR_HW_ID,
        ATTR_HW_NAME,
        ATTR_HW_TYPE,
        ATTR_ERROR_TYPE,
    ),
)
GPU_CLOCK_FREQUENCY: Final = Metric(
    "akka.optimize.training.gpu.clock.frequency",
    Kind.GAUGE,
    "Hz",
    "Frequency of a GPU clock, averaged since the previous export.",
    attributes=(
        ATTR_HW_ID,
        ATTR_HW_NAME,
        ATTR_GPU_CLOCK_DOMAIN,
    ),
)
GPU_CLOCK_THROTTLE_REASONS: Final = Metric(
    "akka.optimize.training.gpu.clock.throttle_reasons",
    Kind.GAUGE,
    "{bitmask}",
    "All reasons that held the GPU's clocks down since the previous export, as NVML's bits.",
    attributes=(
        ATTR_HW_ID,
        ATTR_HW_NAME,
    ),
)
GPU_MEMORY_ACTIVITY: Final = Metric(
    "akka.optimize.training.gpu.memory.activity",
    Kind.GAUGE,
    "1",
    "Fraction of time that the GPU's memory was read or written since the last export.",
    attributes=(
        ATTR_HW_ID,
        ATTR_HW_NAME,
    ),
)
GPU_MEMORY_PAGES_RETIRED: Final = Metric(
    "akka.optimize.training.gpu.memory.pages.retired",
    Kind.GAUGE,
    "{page}",
    "Memory pages that the GPU has retired over its lifetime, by kind of error.",
    attributes=(
        ATTR_HW_ID,
        ATTR_HW_NAME,
        ATTR_ERROR_TYPE,
    ),
)
GPU_MEMORY_REPAIR_PENDING: Final = Metric(
    "akka.optimize.training.gpu.memory.repair.pending",
    Kind.GAUGE,
    "{flag}",
    "1 when a memory repair of the GPU waits for a reset, else 0.",
    attributes=(
        ATTR_HW_ID,
        ATTR_HW_NAME,
    ),
)
GPU_MEMORY_ROWS_REMAPPED: Final = Metric(
    "akka.optimize.training.gpu.memory.rows.remapped",
    Kind.GAUGE,
    "{row}",
    "Memory rows that the GPU has remapped over its lifetime, by kind of error.",
    attributes=(
        ATTR_HW_ID,
        ATTR_HW_NAME,
        ATTR_ERROR_TYPE,
    ),
)
GPU_XID_CAUSES: Final = Metric(
    "akka.optimize.training.gpu.xid.causes",
    Kind.COUNTER,
    "{error}",
    "The XIDs of `gpu.xid.errors` by their usual cause.",
    attributes=(
        ATTR_HW_ID,
        ATTR_HW_NAME,
        ATTR_GPU_XID_CAUSE,
    ),
)
GPU_XID_ERRORS: Final = Metric(
    "akka.optimize.training.gpu.xid.errors",
    Kind.COUNTER,
    "{error}",
    "XIDs, the driver's codes for a GPU fault, since the job started watching.",
    attributes=(
        ATTR_HW_ID,
        ATTR_HW_NAME,
    ),
)
GPU_XID_LAST: Final = Metric(
    "akka.optimize.training.gpu.xid.last",
    Kind.GAUGE,
    "{code}",
    "Code of the latest XID reported for the GPU.",
    attributes=(
        ATTR_HW_ID,
        ATTR_HW_NAME,
    ),
    sticky=True,
)
JOB_DEVICES: Final = Metric(
    "akka.optimize.training.job.devices",
    Kind.GAUGE,
    "{device}",
    "Accelerators allocated to the job.",
)
JOB_EPOCH: Final = Metric(
    "akka.optimize.training.job.epoch",
    Kind.GAUGE,
    "{epoch}",
    "Passes over the training data completed at the latest step.",
)
JOB_PLACEMENT: Final = Metric(
    "akka.optimize.training.job.placement",
    Kind.GAUGE,
    "{process}",
    "Always 1 while the process lives. The attributes say where it runs and which GPU it holds.",
    attributes=(
        ATTR_JOB_RANK,
        ATTR_JOB_ROLE,
        ATTR_HW_ID,
        ATTR_HW_NAME,
        ATTR_K8S_POD_NAME,
        ATTR_K8S_NODE_NAME,
        ATTR_HOST_NAME,
    ),
)
JOB_STEPS_PLANNED: Final = Metric(
    "akka.optimize.training.job.steps.planned",
    Kind.GAUGE,
    "{step}",
    "The number of the training's last step, as the engine numbers steps.",
)
JOB_STEPS_PAUSED: Final = Metric(
    "akka.optimize.training.job.steps.paused",
    Kind.GAUGE,
    "{flag}",
    "1 while the job evaluates or writes a checkpoint in place of making steps, else 0.",
    attributes=(ATTR_JOB_PAUSE_CAUSE,),
)
STEP_MEMORY: Final = Metric(
    "akka.optimize.training.step.memory",
    Kind.GAUGE,
    "By",
    "What held the device's memory at the peak of the latest step, by component.",
    attributes=(ATTR_MEMORY_COMPONENT,),
)
RL_EVAL_REWARD: Final = Metric(
    "akka.optimize.training.rl.eval.reward",
    Kind.GAUGE,
    "{reward}",
    "Mean reward of the latest evaluation of each set.",
    attributes=(ATTR_EVAL_DATASET,),
    sticky=True,
)
RL_GRADER_DURATION: Final = Metric(
    "akka.optimize.training.rl.grader.duration",
    Kind.HISTOGRAM,
    "s",
    "Duration of one reward term scoring one rollout, failed calls included.",
    attributes=(ATTR_RL_TERM,),
    buckets=(
        0.001,
        0.005,
        0.01,
        0.05,
        0.1,
        0.25,
        0.5,
        1.0,
        2.5,
        5.0,
        10.0,
        30.0,
        60.0,
        120.0,
    ),
)
RL_GRADER_FAILURES: Final = Metric(
    "akka.optimize.training.rl.grader.failures",
    Kind.COUNTER,
    "{failure}",
    "Calls of a reward term that gave no score, by cause.",
    attributes=(
        ATTR_RL_TERM,
        ATTR_RL_GRADER_FAILURE_CAUSE,
    ),
)
RL_GRADER_TOKENS: Final = Metric(
    "akka.optimize.training.rl.grader.tokens",
    Kind.COUNTER,
    "{token}",
    "Tokens that a judge reported for its calls, by direction.",
    attributes=(
        ATTR_RL_TERM,
        ATTR_RL_GRADER_TOKEN_TYPE,
    ),
)
RL_IDLE: Final = Metric(
    "akka.optimize.training.rl.idle",
    Kind.GAUGE,
    "1",
    "Share of the latest step that the role waited for the other.",
    attributes=(ATTR_RL_ROLE,),
)
RL_ROLLOUT_COMPLETION_LENGTH: Final = Metric(
    "akka.optimize.training.rl.rollout.completion.length",
    Kind.HISTOGRAM,
    "{token}",
    "Tokens of one completion, up to the last one the model generated.",
    exponential=True,
)
RL_ROLLOUT_REWARD: Final = Metric(
    "akka.optimize.training.rl.rollout.reward",
    Kind.HISTOGRAM,
    "{reward}",
    "Reward of one rollout, as the weighted sum and as each term's weighted share.",
    attributes=(ATTR_RL_TERM,),
    buckets=(
        0.0,
        0.1,
        0.2,
        0.3,
        0.4,
        0.5,
        0.6,
        0.7,
        0.8,
        0.9,
        0.99,
        1.0,
        2.0,
        5.0,
    ),
)
RL_ROLLOUT_REWARD_NEGATIVE: Final = Metric(
    "akka.optimize.training.rl.rollout.reward.negative",
    Kind.COUNTER,
    "{completion}",
    "Completions whose reward, or whose weighted share of a term, was negative.",
    attributes=(ATTR_RL_TERM,),
)
RL_STEP_CLIP_RATIO: Final = Metric(
    "akka.optimize.training.rl.step.clip_ratio",
    Kind.GAUGE,
    "1",
    "Share of tokens whose probability ratio was clipped in the latest step.",
)
RL_STEP_CLIP_RATIO_HIGH: Final = Metric(
    "akka.optimize.training.rl.step.clip_ratio.high",
    Kind.GAUGE,
    "1",
    "Share of tokens clipped at the upper bound in the latest step.",
)
RL_STEP_CLIP_RATIO_LOW: Final = Metric(
    "akka.optimize.training.rl.step.clip_ratio.low",
    Kind.GAUGE,
    "1",
    "Share of tokens clipped at the lower bound in the latest step.",
)
RL_STEP_COMPLETION_CLIPPED_RATIO: Final = Metric(
    "akka.optimize.training.rl.step.completion.clipped_ratio",
    Kind.GAUGE,
    "1",
    "Share of the step's completions that were truncated at the maximum length.",
)
RL_STEP_COMPLETION_LENGTH: Final = Metric(
    "akka.optimize.training.rl.step.completion.length",
    Kind.GAUGE,
    "{token}",
    "Mean length of the step's completions.",
)
RL_STEP_COMPLETION_LENGTH_MAX: Final = Metric(
    "akka.optimize.training.rl.step.completion.length.max",
    Kind.GAUGE,
    "{token}",
    "Length of the step's longest completion.",
)
RL_STEP_COMPLETION_LENGTH_MIN: Final = Metric(
    "akka.optimize.training.rl.step.completion.length.min",
    Kind.GAUGE,
    "{token}",
    "Length of the step's shortest completion.",
)
RL_STEP_COMPLETION_LENGTH_TERMINATED: Final = Metric(
    "akka.optimize.training.rl.step.completion.length.terminated",
    Kind.GAUGE,
    "{token}",
    "Mean length of the step's completions that ended by themselves.",
)
RL_STEP_COUNT: Final = Metric(
    "akka.optimize.training.rl.step.count",
    Kind.COUNTER,
    "{step}",
    "Reinforcement steps that this attempt has completed.",
)
RL_STEP_DURATION: Final = Metric(
    "akka.optimize.training.rl.step.duration",
    Kind.HISTOGRAM,
    "s",
    "Duration of one whole reinforcement step, generation included.",
    buckets=(
        0.05,
        0.1,
        0.25,
        0.5,
        1.0,
        2.5,
        5.0,
        10.0,
        20.0,
        30.0,
        60.0,
        120.0,
        300.0,
        600.0,
        1200.0,
        1800.0,
        3600.0,
    ),
)
RL_STEP_ENTROPY: Final = Metric(
    "akka.optimize.training.rl.step.entropy",
    Kind.GAUGE,
    "{nat}",
    "Mean entropy per token of the step's completions.",
)
RL_STEP_FRAC_REWARD_ZERO_STD: Final = Metric(
    "akka.optimize.training.rl.step.frac_reward_zero_std",
    Kind.GAUGE,
    "1",
    "Share of the step's prompt groups whose completions all got the same reward.",
)
RL_STEP_GRAD_NORM: Final = Metric(
    "akka.optimize.training.rl.step.grad_norm",
    Kind.GAUGE,
    "{norm}",
    "Gradient norm of the latest step, before clipping.",
)
RL_STEP_KL: Final = Metric(
    "akka.optimize.training.rl.step.kl",
    Kind.GAUGE,
    "{nat}",
    "KL divergence of the policy from the reference model per token, in the latest step.",
)
RL_STEP_LEARNING_RATE: Final = Metric(
    "akka.optimize.training.rl.step.learning_rate",
    Kind.GAUGE,
    "{rate}",
    "Learning rate applied in the latest step.",
)
RL_STEP_LOSS: Final = Metric(
    "akka.optimize.training.rl.step.loss",
    Kind.GAUGE,
    "{loss}",
    "Loss that the latest step minimised, the policy loss with its penalties and bonuses.",
)
RL_STEP_MEMORY_MAX_ALLOCATED: Final = Metric(
    "akka.optimize.training.rl.step.memory.max_allocated",
    Kind.GAUGE,
    "By",
    "Most device memory held in tensors at once since the process started.",
)
RL_STEP_MEMORY_MAX_RESERVED: Final = Metric(
    "akka.optimize.training.rl.step.memory.max_reserved",
    Kind.GAUGE,
    "By",
    "Most device memory the caching allocator held at once since the process started.",
)
RL_STEP_MFU: Final = Metric(
    "akka.optimize.training.rl.step.mfu",
    Kind.GAUGE,
    "1",
    "Fraction of the devices' dense bf16 peak FLOPs that the policy update reached.",
)
RL_STEP_NUMBER: Final = Metric(
    "akka.optimize.training.rl.step.number",
    Kind.GAUGE,
    "{step}",
    "The engine's own number of the latest step.",
)
RL_STEP_POLICY_LOSS: Final = Metric(
    "akka.optimize.training.rl.step.policy_loss",
    Kind.GAUGE,
    "{loss}",
    "Policy gradient loss of the latest step, as the run aggregates it over tokens.",
)
RL_STEP_REWARD: Final = Metric(
    "akka.optimize.training.rl.step.reward",
    Kind.GAUGE,
    "{reward}",
    "Mean reward of the step's completions.",
)
RL_STEP_REWARD_MAX: Final = Metric(
    "akka.optimize.training.rl.step.reward.max",
    Kind.GAUGE,
    "{reward}",
    "Highest reward of the step's scored completions.",
)
RL_STEP_REWARD_MIN: Final = Metric(
    "akka.optimize.training.rl.step.reward.min",
    Kind.GAUGE,
    "{reward}",
    "Lowest reward of the step's scored completions.",
)
RL_STEP_REWARD_STD: Final = Metric(
    "akka.optimize.training.rl.step.reward.std",
    Kind.GAUGE,
    "{reward}",
    "Standard deviation of the reward across the step's completions.",
)
RL_STEP_REWARD_TERM: Final = Metric(
    "akka.optimize.training.rl.step.reward.term",
    Kind.GAUGE,
    "{reward}",
    "Mean weighted share of one reward term across the step's completions.",
    attributes=(ATTR_RL_TERM,),
)
RL_STEP_REWARD_TERM_STD: Final = Metric(
    "akka.optimize.training.rl.step.reward.term.std",
    Kind.GAUGE,
    "{reward}",
    "Standard deviation of one term's weighted share across the step's completions.",
    attributes=(ATTR_RL_TERM,),
)
RL_STEP_REWARD_ZERO_RATIO: Final = Metric(
    "akka.optimize.training.rl.step.reward.zero_ratio",
    Kind.GAUGE,
    "1",
    "Share of the step's completions whose reward was zero.",
)
RL_STEP_ROLLOUTS: Final = Metric(
    "akka.optimize.training.rl.step.rollouts",
    Kind.GAUGE,
    "{completion}",
    "Completions that were scored in the latest step, with a finite reward.",
)
RL_STEP_THROUGHPUT: Final = Metric(
    "akka.optimize.training.rl.step.throughput",
    Kind.GAUGE,
    "{token}/s",
    "Prompt and completion tokens per second and device over the whole step.",
)
RL_STEP_TIMING: Final = Metric(
    "akka.optimize.training.rl.step.timing",
    Kind.GAUGE,
    "s",
    "Wall-clock time of one phase of the latest step, as the engine measured it.",
    attributes=(ATTR_RL_STEP_PHASE,),
    sticky_values=frozenset({"testing", "save_checkpoint"}),
)
RL_STEP_TOKENS: Final = Metric(
    "akka.optimize.training.rl.step.tokens",
    Kind.GAUGE,
    "{token}",
    "Prompt and completion tokens in the batch of the latest step.",
)
RL_STEP_TOOL_CALLS: Final = Metric(
    "akka.optimize.training.rl.step.tool.calls",
    Kind.GAUGE,
    "{call}",
    "Mean number of tool calls per completion in the latest step.",
)
RL_STEP_TOOL_FAILURE_RATIO: Final = Metric(
    "akka.optimize.training.rl.step.tool.failure_ratio",
    Kind.GAUGE,
    "1",
    "Share of the step's tool calls that failed.",
)
POOL_CLAIMS: Final = Metric(
    "akka.optimize.training.pool.claims",
    Kind.GAUGE,
    "{claim}",
    "Active claims on a GPU pool, by claim state.",
    attributes=(
        ATTR_CLAIM_STATE,
        ATTR_POOL_ACCELERATOR,
        ATTR_POOL_SERVING,
        ATTR_INSTANCE,
    ),
)
POOL_DEVICES_CLAIMED: Final = Metric(
    "akka.optimize.training.pool.devices.claimed",
    Kind.GAUGE,
    "{device}",
    "Devices that the active claims on a GPU pool hold or wait for, by claim state.",
    attributes=(
        ATTR_CLAIM_STATE,
        ATTR_POOL_ACCELERATOR,
        ATTR_POOL_SERVING,
        ATTR_INSTANCE,
    ),
)
POOL_DEVICES_DECLARED: Final = Metric(
    "akka.optimize.training.pool.devices.declared",
    Kind.GAUGE,
    "{device}",
    "Devices that the deployment declares for a GPU pool.",
    attributes=(
        ATTR_POOL_ACCELERATOR,
        ATTR_POOL_SERVING,
        ATTR_INSTANCE,
    ),
)
POOL_DEVICES_OBSERVED: Final = Metric(
    "akka.optimize.training.pool.devices.observed",
    Kind.GAUGE,
    "{device}",
    "Devices that the pool's cluster held at its latest reading.",
    attributes=(
        ATTR_POOL_ACCELERATOR,
        ATTR_POOL_SERVING,
        ATTR_INSTANCE,
    ),
)
PROJECT_DEVICES_CLAIMED: Final = Metric(
    "akka.optimize.training.project.devices.claimed",
    Kind.GAUGE,
    "{device}",
    "Devices that a project's claims hold or wait for across all pools, by claim state.",
    attributes=(
        ATTR_PROJECT,
        ATTR_CLAIM_STATE,
        ATTR_INSTANCE,
    ),
)
PROJECT_DEVICES_QUOTA: Final = Metric(
    "akka.optimize.training.project.devices.quota",
    Kind.GAUGE,
    "{device}",
    "Devices that a project may hold at once across all pools.",
    attributes=(
        ATTR_PROJECT,
        ATTR_INSTANCE,
    ),
)
GPU_TIME: Final = Metric(
    "akka.optimize.training.gpu.time",
    Kind.COUNTER,
    "s",
    "GPU compute time that training jobs have consumed.",
    attributes=(
        ATTR_PROJECT,
        ATTR_GPU_DERIVED,
    ),
)
PIPELINE_ACTIVE: Final = Metric(
    "akka.optimize.training.pipeline.active",
    Kind.GAUGE,
    "{pipeline}",
    "Training pipelines that are active now.",
    attributes=(ATTR_PROJECT,),
)
PIPELINE_STAGE_DURATION: Final = Metric(
    "akka.optimize.training.pipeline.stage.duration",
    Kind.HISTOGRAM,
    "s",
    "Duration of one stage of a training pipeline.",
    attributes=(
        ATTR_PROJECT,
        ATTR_PIPELINE_STAGE_TYPE,
        ATTR_PIPELINE_STAGE_OUTCOME,
    ),
    buckets=(
        60.0,
        300.0,
        900.0,
        1800.0,
        3600.0,
        7200.0,
        14400.0,
        28800.0,
        86400.0,
        172800.0,
        604800.0,
    ),
)
RUN_ACTIVE: Final = Metric(
    "akka.optimize.training.run.active",
    Kind.GAUGE,
    "{run}",
    "Active training runs, by phase.",
    attributes=(
        ATTR_PROJECT,
        ATTR_RUN_PHASE,
    ),
)
RUN_DURATION: Final = Metric(
    "akka.optimize.training.run.duration",
    Kind.HISTOGRAM,
    "s",
    "Duration of a training run from end to end.",
    attributes=(
        ATTR_PROJECT,
        ATTR_RUN_OUTCOME,
    ),
    buckets=(
        60.0,
        300.0,
        900.0,
        1800.0,
        3600.0,
        7200.0,
        14400.0,
        28800.0,
        86400.0,
        172800.0,
        604800.0,
    ),
)
RUN_FAILURES: Final = Metric(
    "akka.optimize.training.run.failures",
    Kind.COUNTER,
    "{run}",
    "Training runs that failed, by the phase they failed in.",
    attributes=(
        ATTR_PROJECT,
        ATTR_RUN_PHASE,
    ),
)
RUN_PHASE_DURATION: Final = Metric(
    "akka.optimize.training.run.phase.duration",
    Kind.HISTOGRAM,
    "s",
    "Time that a training run spent in a phase before it left it.",
    attributes=(
        ATTR_PROJECT,
        ATTR_RUN_PHASE,
    ),
    buckets=(
        1.0,
        5.0,
        10.0,
        30.0,
        60.0,
        120.0,
        300.0,
        600.0,
        1800.0,
        3600.0,
        7200.0,
        14400.0,
        28800.0,
        86400.0,
        172800.0,
        604800.0,
    ),
)
RUN_PHASE_ENTERED: Final = Metric(
    "akka.optimize.training.run.phase.entered",
    Kind.COUNTER,
    "{run}",
    "Times that training runs have entered a phase.",
    attributes=(
        ATTR_PROJECT,
        ATTR_RUN_PHASE,
    ),
)
SERVICE_OPERATIONS: Final = Metric(
    "akka.optimize.training.service.operations",
    Kind.COUNTER,
    "{operation}",
    "Accepted requests and external attempts that the service observed.",
    attributes=(
        ATTR_SERVICE_OPERATION,
        ATTR_SERVICE_STAGE,
        ATTR_SERVICE_OUTCOME,
        ATTR_SERVICE_FAILURE_REASON,
    ),
)
SERVICE_OPERATION_DURATION: Final = Metric(
    "akka.optimize.training.service.operation.duration",
    Kind.HISTOGRAM,
    "s",
    "Time from the durable acceptance of an operation to its end.",
    attributes=(
        ATTR_SERVICE_OPERATION,
        ATTR_SERVICE_STAGE,
        ATTR_SERVICE_OUTCOME,
        ATTR_SERVICE_FAILURE_REASON,
    ),
    buckets=(
        0.1,
        0.5,
        1.0,
        2.5,
        5.0,
        10.0,
        30.0,
        60.0,
        120.0,
        300.0,
        600.0,
        1800.0,
        3600.0,
    ),
)
SFT_DATA_ROWS: Final = Metric(
    "akka.optimize.training.sft.data.rows",
    Kind.GAUGE,
    "{row}",
    "Training rows, by how they fit the maximum length.",
    attributes=(ATTR_SFT_DATA_FIT,),
    sticky=True,
)
SFT_EVAL_LOSS: Final = Metric(
    "akka.optimize.training.sft.eval.loss",
    Kind.GAUGE,
    "{loss}",
    "Loss on the held-out split at the latest evaluation of each set.",
    attributes=(ATTR_EVAL_DATASET,),
    sticky=True,
)
SFT_STEP_COUNT: Final = Metric(
    "akka.optimize.training.sft.step.count",
    Kind.COUNTER,
    "{step}",
    "Supervised steps that this attempt has completed.",
)
SFT_STEP_DURATION: Final = Metric(
    "akka.optimize.training.sft.step.duration",
    Kind.HISTOGRAM,
    "s",
    "Duration of one whole supervised update, without its input.",
    buckets=(
        0.05,
        0.1,
        0.25,
        0.5,
        1.0,
        2.5,
        5.0,
        10.0,
        20.0,
        30.0,
        60.0,
        120.0,
        300.0,
        600.0,
        1200.0,
        1800.0,
        3600.0,
    ),
)
SFT_STEP_GRAD_NORM: Final = Metric(
    "akka.optimize.training.sft.step.grad_norm",
    Kind.GAUGE,
    "{norm}",
    "Gradient norm of the latest optimizer step, before clipping.",
)
SFT_STEP_LEARNING_RATE: Final = Metric(
    "akka.optimize.training.sft.step.learning_rate",
    Kind.GAUGE,
    "{rate}",
    "Learning rate applied in the latest optimizer step.",
)
SFT_STEP_LOSS: Final = Metric(
    "akka.optimize.training.sft.step.loss",
    Kind.GAUGE,
    "{loss}",
    "Training loss of the latest step.",
)
SFT_STEP_MEMORY_MAX_ALLOCATED: Final = Metric(
    "akka.optimize.training.sft.step.memory.max_allocated",
    Kind.GAUGE,
    "By",
    "Most device memory held in tensors at once since the process started.",
)
SFT_STEP_MEMORY_MAX_RESERVED: Final = Metric(
    "akka.optimize.training.sft.step.memory.max_reserved",
    Kind.GAUGE,
    "By",
    "Most device memory the caching allocator held at once since the process started.",
)
SFT_STEP_MFU: Final = Metric(
    "akka.optimize.training.sft.step.mfu",
    Kind.GAUGE,
    "1",
    "Fraction of the devices' dense bf16 peak FLOPs that the latest step reached.",
)
SFT_STEP_NUMBER: Final = Metric(
    "akka.optimize.training.sft.step.number",
    Kind.GAUGE,
    "{step}",
    "The engine's own number of the latest step.",
)
SFT_STEP_PADDING: Final = Metric(
    "akka.optimize.training.sft.step.padding",
    Kind.GAUGE,
    "1",
    "Share of the token positions in the latest step's batches that were padding.",
)
SFT_STEP_THROUGHPUT: Final = Metric(
    "akka.optimize.training.sft.step.throughput",
    Kind.GAUGE,
    "{token}/s",
    "Tokens trained on per second and device over the whole update.",
)
SFT_STEP_TIMING: Final = Metric(
    "akka.optimize.training.sft.step.timing",
    Kind.GAUGE,
    "s",
    "Wall-clock time of the latest run of one phase of the supervised loop.",
    attributes=(ATTR_SFT_STEP_PHASE,),
    sticky_values=frozenset({"eval", "save_checkpoint"}),
)
SFT_STEP_TOKEN_ACCURACY: Final = Metric(
    "akka.optimize.training.sft.step.token_accuracy",
    Kind.GAUGE,
    "1",
    "Share of the latest step's tokens whose next-token prediction was right.",
)
SFT_STEP_TOKENS: Final = Metric(
    "akka.optimize.training.sft.step.tokens",
    Kind.GAUGE,
    "{token}",
    "Tokens in the batch of the latest step, padding left out.",
)
TELEMETRY_DROPPED: Final = Metric(
    "akka.optimize.training.telemetry.dropped",
    Kind.COUNTER,
    "{step}",
    "Steps whose own points were not exported, by reason.",
    attributes=(ATTR_TELEMETRY_REASON,),
)
TELEMETRY_NONFINITE: Final = Metric(
    "akka.optimize.training.telemetry.nonfinite",
    Kind.COUNTER,
    "{value}",
    "Figures that were NaN or infinite and therefore not published, by metric.",
    attributes=(
        ATTR_TELEMETRY_METRIC,
        ATTR_RL_TERM,
    ),
)
TELEMETRY_OVERFLOW: Final = Metric(
    "akka.optimize.training.telemetry.overflow",
    Kind.COUNTER,
    "{figure}",
    "Figures that were left out because their attribute had too many values, by metric.",
    attributes=(ATTR_TELEMETRY_METRIC,),
)

# Spans.

SPAN_JOB: Final = Span(
    "akka.optimize.training.job",
    "The whole job. It is the root of the job's spans and part of the trace that started the run.",
    attributes=(
        ATTR_CHECKPOINT_RESTORE_MODE,
        ATTR_CHECKPOINT_SNAPSHOT_ID,
        ATTR_CHECKPOINT_SOURCE_RUN_ID,
        ATTR_CHECKPOINT_SOURCE_ATTEMPT,
        ATTR_CHECKPOINT_SOURCE_ENGINE_STEP,
        ATTR_PAUSE_POLICY,
        ATTR_ERROR_TYPE,
    ),
)
SPAN_CHECKPOINT_OPERATION: Final = Span(
    "akka.optimize.training.checkpoint",
    "One attempt at a checkpoint operation.",
    attributes=(
        ATTR_CHECKPOINT_OPERATION,
        ATTR_CHECKPOINT_OUTCOME,
        ATTR_CHECKPOINT_ARTIFACT_KIND,
        ATTR_CHECKPOINT_STORAGE_MODE,
        ATTR_CHECKPOINT_FAILURE_REASON,
        ATTR_CHECKPOINT_SNAPSHOT_ID,
        ATTR_CHECKPOINT_RESTORE_MODE,
        ATTR_CHECKPOINT_SOURCE_RUN_ID,
        ATTR_CHECKPOINT_SOURCE_ATTEMPT,
        ATTR_CHECKPOINT_SOURCE_ENGINE_STEP,
        ATTR_ERROR_TYPE,
        ATTR_SPAN_UNFINISHED,
    ),
    one_per=ATTR_CHECKPOINT_OPERATION,
)
SPAN_EVAL: Final = Span(
    "akka.optimize.training.eval",
    "One pass over the held-out split.",
    attributes=(ATTR_ERROR_TYPE,),
)
SPAN_RL_STEP: Final = Span(
    "akka.optimize.training.rl.step",
    "One reinforcement step, with `AKKA_OTEL_SPANS=step` or `phase`.",
    attributes=(
        ATTR_SPAN_STEP,
        ATTR_SPAN_UNFINISHED,
        ATTR_ERROR_TYPE,
    ),
)
SPAN_RL_STEP_PHASE: Final = Span(
    "akka.optimize.training.rl.step",
    "One phase of a reinforcement step, with `AKKA_OTEL_SPANS=phase`.",
    attributes=(
        ATTR_RL_STEP_PHASE,
        ATTR_SPAN_STEP,
        ATTR_ERROR_TYPE,
    ),
    one_per=ATTR_RL_STEP_PHASE,
)
SPAN_SFT_STEP: Final = Span(
    "akka.optimize.training.sft.step",
    "One supervised update, with `AKKA_OTEL_SPANS=step` or `phase`.",
    attributes=(
        ATTR_SPAN_STEP,
        ATTR_SPAN_UNFINISHED,
        ATTR_ERROR_TYPE,
    ),
)
SPAN_SFT_STEP_PHASE: Final = Span(
    "akka.optimize.training.sft.step",
    "One phase of the supervised loop, with `AKKA_OTEL_SPANS=phase`.",
    attributes=(
        ATTR_SFT_STEP_PHASE,
        ATTR_SPAN_STEP,
        ATTR_ERROR_TYPE,
    ),
    one_per=ATTR_SFT_STEP_PHASE,
)

# Log records.

EVENT_GPU_XID: Final = Event(
    "akka.optimize.training.gpu.xid",
    "The driver reported a fault of a GPU.",
    attributes=(
        ATTR_HW_ID,
        ATTR_HW_NAME,
        ATTR_GPU_XID,
    ),
)
EVENT_JOB_FAILED: Final = Event(
    "akka.optimize.training.job.failed",
    "An exception ended the training.",
    attributes=(ATTR_ERROR_TYPE,),
)

JOB_METRICS: Final = (
    CHECKPOINT_OPERATION_DURATION,
    CHECKPOINT_PENDING,
    CHECKPOINT_TRANSFER_SIZE,
    HW_POWER,
    HW_ENERGY,
    HW_TEMPERATURE,
    HW_GPU_UTILIZATION,
    HW_GPU_MEMORY_USAGE,
    HW_GPU_MEMORY_LIMIT,
    HW_GPU_MEMORY_UTILIZATION,
    HW_STATUS,
    HW_ERRORS,
    GPU_CLOCK_FREQUENCY,
    GPU_CLOCK_THROTTLE_REASONS,
    GPU_MEMORY_ACTIVITY,
    GPU_MEMORY_PAGES_RETIRED,
    GPU_MEMORY_REPAIR_PENDING,
    GPU_MEMORY_ROWS_REMAPPED,
    GPU_XID_CAUSES,
    GPU_XID_ERRORS,
    GPU_XID_LAST,
    JOB_DEVICES,
    JOB_EPOCH,
    JOB_PLACEMENT,
    JOB_STEPS_PLANNED,
    JOB_STEPS_PAUSED,
    STEP_MEMORY,
    RL_EVAL_REWARD,
    RL_GRADER_DURATION,
    RL_GRADER_FAILURES,
    RL_GRADER_TOKENS,
    RL_IDLE,
    RL_ROLLOUT_COMPLETION_LENGTH,
    RL_ROLLOUT_REWARD,
    RL_ROLLOUT_REWARD_NEGATIVE,
    RL_STEP_CLIP_RATIO,
    RL_STEP_CLIP_RATIO_HIGH,
    RL_STEP_CLIP_RATIO_LOW,
    RL_STEP_COMPLETION_CLIPPED_RATIO,
    RL_STEP_COMPLETION_LENGTH,
    RL_STEP_COMPLETION_LENGTH_MAX,
    RL_STEP_COMPLETION_LENGTH_MIN,
    RL_STEP_COMPLETION_LENGTH_TERMINATED,
    RL_STEP_COUNT,
    RL_STEP_DURATION,
    RL_STEP_ENTROPY,
    RL_STEP_FRAC_REWARD_ZERO_STD,
    RL_STEP_GRAD_NORM,
    RL_STEP_KL,
    RL_STEP_LEARNING_RATE,
    RL_STEP_LOSS,
    RL_STEP_MEMORY_MAX_ALLOCATED,
    RL_STEP_MEMORY_MAX_RESERVED,
    RL_STEP_MFU,
    RL_STEP_NUMBER,
    RL_STEP_POLICY_LOSS,
    RL_STEP_REWARD,
    RL_STEP_REWARD_MAX,
    RL_STEP_REWARD_MIN,
    RL_STEP_REWARD_STD,
    RL_STEP_REWARD_TERM,
    RL_STEP_REWARD_TERM_STD,
    RL_STEP_REWARD_ZERO_RATIO,
    RL_STEP_ROLLOUTS,
    RL_STEP_THROUGHPUT,
    RL_STEP_TIMING,
    RL_STEP_TOKENS,
    RL_STEP_TOOL_CALLS,
    RL_STEP_TOOL_FAILURE_RATIO,
    SFT_DATA_ROWS,
    SFT_EVAL_LOSS,
    SFT_STEP_COUNT,
    SFT_STEP_DURATION,
    SFT_STEP_GRAD_NORM,
    SFT_STEP_LEARNING_RATE,
    SFT_STEP_LOSS,
    SFT_STEP_MEMORY_MAX_ALLOCATED,
    SFT_STEP_MEMORY_MAX_RESERVED,
    SFT_STEP_MFU,
    SFT_STEP_NUMBER,
    SFT_STEP_PADDING,
    SFT_STEP_THROUGHPUT,
    SFT_STEP_TIMING,
    SFT_STEP_TOKEN_ACCURACY,
    SFT_STEP_TOKENS,
    TELEMETRY_DROPPED,
    TELEMETRY_NONFINITE,
    TELEMETRY_OVERFLOW,
)

SERVICE_METRICS: Final = (
    POOL_CLAIMS,
    POOL_DEVICES_CLAIMED,
    POOL_DEVICES_DECLARED,
    POOL_DEVICES_OBSERVED,
    PROJECT_DEVICES_CLAIMED,
    PROJECT_DEVICES_QUOTA,
    GPU_TIME,
    PIPELINE_ACTIVE,
    PIPELINE_STAGE_DURATION,
    RUN_ACTIVE,
    RUN_DURATION,
    RUN_FAILURES,
    RUN_PHASE_DURATION,
    RUN_PHASE_ENTERED,
    SERVICE_OPERATIONS,
    SERVICE_OPERATION_DURATION,
)

METRICS: Final = JOB_METRICS + SERVICE_METRICS

RESOURCE_ATTRIBUTES: Final = (
    ATTR_RUN_ID,
    ATTR_RUN_ATTEMPT,
    ATTR_RUN_ENGINE,
    ATTR_RUN_METHOD,
    ATTR_RUN_NAME,
    ATTR_RUN_BASE_MODEL,
    ATTR_RUN_LEARNING_RATE,
    ATTR_RUN_LORA_RANK,
    ATTR_RUN_GROUP_SIZE,
    ATTR_RUN_SETTINGS_SHA,
    ATTR_PROJECT,
    ATTR_WORKLOAD,
    ATTR_JOB_SUBMISSION_ID,
    ATTR_PROFILE,
    ATTR_PIPELINE_ID,
    ATTR_PIPELINE_STAGE_NAME,
    ATTR_REPLAY_FORMAT,
    ATTR_REPLAY_TIMES,
    ATTR_SERVICE_NAME,
    ATTR_SERVICE_INSTANCE_ID,
    ATTR_K8S_POD_NAME,
    ATTR_K8S_NODE_NAME,
    ATTR_HOST_NAME,
    ATTR_PROCESS_PID,
)

PROMOTED_ATTRIBUTES: Final = (
    ATTR_RUN_ID,
    ATTR_RUN_ATTEMPT,
    ATTR_RUN_ENGINE,
    ATTR_RUN_METHOD,
    ATTR_PROJECT,
    ATTR_PIPELINE_ID,
    ATTR_PIPELINE_STAGE_NAME,
)
"""The attributes of the resource that become labels of every series in Prometheus."""

SPANS: Final = (
    SPAN_JOB,
    SPAN_CHECKPOINT_OPERATION,
    SPAN_EVAL,
    SPAN_RL_STEP,
    SPAN_RL_STEP_PHASE,
    SPAN_SFT_STEP,
    SPAN_SFT_STEP_PHASE,
)

EVENTS: Final = (
    EVENT_GPU_XID,
    EVENT_JOB_FAILED,
)
