#!/bin/bash
# verl on a Ray cluster that runs already, as a job of Ray's. Its packages are on the nodes, or in the runtime environment.
#
#   RAY_ADDRESS=http://head:8265 RUN=grpo-math-17 PROJECT=math ./submit.sh python -m verl.trainer.main_ppo … \
#       'trainer.logger=["console","akka_otel"]'
#
# A job that is submitted again under the same RUN is another attempt of that run: say which by ATTEMPT.
set -euo pipefail

: "${RUN:?the run has no ID: set RUN}"
attempt=${ATTEMPT:-1}
attributes="akka.optimize.training.run.id=$RUN,akka.optimize.training.run.attempt=$attempt"
attributes+=",akka.optimize.training.project=${PROJECT:-demo},akka.optimize.training.job.submission_id=$RUN-$attempt"
endpoint=${OTEL_EXPORTER_OTLP_ENDPOINT:-http://localhost:4318}

# The variables reach the job's driver, and the driver hands them to the workers with the run's identity and its trace.
# Never give pod or node names here: every pod sets its own.
exec "${RAY:-ray}" job submit ${NO_WAIT:+--no-wait} --submission-id "$RUN-$attempt" \
    --runtime-env-json "{\"env_vars\": {\"OTEL_EXPORTER_OTLP_ENDPOINT\": \"$endpoint\", \"OTEL_RESOURCE_ATTRIBUTES\": \"$attributes\"}}" \
    -- "$@"
