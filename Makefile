# Two commands for a newcomer: `make demo` and `make test`. Each sets up what it needs.

PYTHON ?= python3
PIP_INSTALL = $(1)/bin/python -m pip install --quiet --disable-pip-version-check
export HF_HUB_OFFLINE = 1
export TOKENIZERS_PARALLELISM = false

TRL = .venv-trl/ready
TRL_OLDEST = .venv-trl-oldest/ready
PYTEST = OMP_NUM_THREADS=1 $(1)/bin/python -m pytest -q

.PHONY: demo test test-trl test-trl-oldest lint generate bench clean

demo: $(TRL)  ## Train a tiny model and show its figures
	.venv-trl/bin/akka-otel demo

test: lint test-trl test-trl-oldest  ## Everything that CI runs

test-trl: $(TRL)
	$(call PYTEST,.venv-trl) tests

test-trl-oldest: $(TRL_OLDEST)  ## The same trainings on the oldest TRL that is supported in full
	$(call PYTEST,.venv-trl-oldest) tests/trl tests/common

lint: $(TRL)  ## Style, types, and generated files that are up to date
	.venv-trl/bin/ruff check
	.venv-trl/bin/ruff format --check
	.venv-trl/bin/mypy
	.venv-trl/bin/python -m tools.generate --check

generate: $(TRL)  ## Write names and reference anew from registry/
	.venv-trl/bin/python -m tools.generate

bench: $(TRL)  ## Costs beside other loggers, measured on this machine
	$(call PIP_INSTALL,.venv-trl) -c constraints/trl.txt -r benchmarks/requirements.txt
	.venv-trl/bin/python -m benchmarks.step_cost
	.venv-trl/bin/python -m benchmarks.footprint

clean:
	rm -rf .venv-trl .venv-trl-oldest

# An environment is ready once everything was installed; a broken install is begun anew.
# torch comes first and pinned: an open range would fetch a CUDA build of several gigabytes.
$(TRL): pyproject.toml constraints/trl.txt
	$(PYTHON) -m venv .venv-trl
	$(call PIP_INSTALL,.venv-trl) -c constraints/trl.txt torch
	$(call PIP_INSTALL,.venv-trl) -c constraints/trl.txt -e '.[trl,grpc,prometheus,dev]'
	touch $@

$(TRL_OLDEST): pyproject.toml constraints/trl-oldest.txt
	$(PYTHON) -m venv .venv-trl-oldest
	$(call PIP_INSTALL,.venv-trl-oldest) -c constraints/trl-oldest.txt torch
	$(call PIP_INSTALL,.venv-trl-oldest) -c constraints/trl-oldest.txt -e '.[trl,grpc,prometheus,dev]'
	touch $@
