# Two commands for a newcomer: `make demo` and `make test`. Each sets up what it needs.

PYTHON ?= python3
export HF_HUB_OFFLINE = 1
export TOKENIZERS_PARALLELISM = false
export OMP_NUM_THREADS = 1
# A training on Ray starts a dozen processes. Without compiled files each would compile torch and verl anew.
unexport PYTHONDONTWRITEBYTECODE

# verl does not load beside a current TRL, and the oldest TRL not beside the newest: an environment each.
TRL = .venv-trl/ready
OLDEST = .venv-trl-oldest/ready
VERL = .venv-verl/ready
FLOOR = .venv-floor/ready
BENCH = .venv-bench/ready
# Frameworks that train through TRL, an environment of 2 to 4 GB each.
HOSTS = unsloth axolotl swift
# Supported beside the one that all other tests run on.
PYTHONS = 3.10 3.12 3.13

.PHONY: demo test lint test-trl test-trl-oldest test-floor test-pythons test-verl test-verl-e2e test-vllm test-hosts generate pictures bench programs clean

demo: $(TRL)  ## Train a tiny model and show its figures
	.venv-trl/bin/akka-otel demo

# Environments wait for downloads and trainings for each other, so side by side. The two longest begin first: they would
# not if they waited for the programs once more.
test:  ## Everything that CI runs
	$(MAKE) --jobs=3 $(TRL) $(OLDEST) $(VERL) $(FLOOR) programs
	$(MAKE) lint
	$(MAKE) --jobs=2 --keep-going --old-file=programs test-verl-e2e test-trl test-trl-oldest test-verl test-floor test-pythons

lint: $(TRL)  ## Style, types, and generated files that are up to date
	.venv-trl/bin/ruff check
	.venv-trl/bin/ruff format --check
	.venv-trl/bin/mypy
	.venv-trl/bin/python -m tools.generate --check

test-trl: $(TRL) programs
	.venv-trl/bin/python -m pytest -q

test-trl-oldest: $(OLDEST)  ## The same trainings on the oldest TRL that is supported in full
	.venv-trl-oldest/bin/python -m pytest -q tests/trl

test-floor: $(FLOOR)  ## The core and the commands on the oldest versions that `pyproject.toml` allows, without an engine
	.venv-floor/bin/python -m pytest -q $(FLOOR_TESTS)

test-pythons: $(PYTHONS:%=test-python%)  ## The same on the other Pythons that this machine has, with current versions

test-python%:
	@if python$* -c 'import venv' 2>/dev/null; then $(MAKE) .venv-python$*/ready && \
	  .venv-python$*/bin/python -m pytest -q $(FLOOR_TESTS); \
	else echo "python$* is not installed here: the core is not tested on it"; fi

test-verl: $(VERL)  ## The verl backend on verl's own classes and on recorded log calls
	.venv-verl/bin/python -m pytest -q tests/verl --ignore=tests/verl/e2e

test-verl-e2e: $(VERL) programs  ## Real verl trainings on the CPU; about a minute each. VERL_E2E=all adds further trainers
	.venv-verl/bin/python -m pytest -q tests/verl/e2e

test-vllm: $(VERL)  ## vLLM's own classes on Ray's endpoint; the wheel takes 700 MB
	$(call install,.venv-verl,--no-deps --target .vllm-site vllm==0.24.0 cbor2 openai_harmony openai pybase64 uvloop \
	  py-cpuinfo httpx2 llguidance xgrammar apache-tvm-ffi)
	VLLM_SITE=.vllm-site .venv-verl/bin/python -m pytest -q tests/verl/rollout/test_vllm.py

test-hosts: $(HOSTS:%=.venv-%/ready)  ## Trainings within Unsloth, Axolotl and ms-swift; minutes each
	for host in $(HOSTS); do .venv-$$host/bin/python -m pytest -q tests/hosts/test_$$host.py || exit 1; done

generate: $(TRL)  ## Write names and reference anew from registry/
	.venv-trl/bin/python -m tools.generate

pictures: $(TRL)  ## Draw the pictures of README.md and docs/report.md anew, from trainings
	.venv-trl/bin/python -m tools.pages

bench: $(BENCH)  ## Costs beside other loggers, measured on this machine
	.venv-bench/bin/python -m benchmarks.step_cost
	.venv-bench/bin/python -m benchmarks.large_steps
	.venv-bench/bin/python -m benchmarks.reward_calls
	.venv-bench/bin/python -m benchmarks.footprint
	.venv-bench/bin/python -m benchmarks.gpu_cost
	.venv-bench/bin/python -m benchmarks.flops_error

clean:
	rm -rf .venv-trl .venv-trl-oldest .venv-verl .venv-floor .venv-bench .venv-python* $(HOSTS:%=.venv-%) .vllm-site .programs

# Prometheus, VictoriaMetrics and Chromium. Where they cannot be had, the tests that need them are skipped and say so.
programs:
	-@$(MAKE) --no-print-directory .programs/ready

.programs/ready: tools/programs.sh
	tools/programs.sh .programs > .programs.log 2>&1 || { tail -3 .programs.log; exit 1; }
	touch $@

# Variables, because a comma in an argument of `call` would end the argument.
WITH_TRL = -e '.[trl,grpc,prometheus,dev]'
WITH_NEWEST_TRL = $(WITH_TRL) -e '.[examples,tensorboard]'
WITH_VERL = -e '.[grpc,prometheus,dev]' -e ./examples/verl_cpu
WITH_NEITHER = -e '.[grpc]' hypothesis pytest pyyaml opentelemetry-exporter-otlp-proto-grpc \
  opentelemetry-exporter-otlp-proto-http
WITH_PEERS = -e '.[trl,grpc,prometheus]' -r benchmarks/requirements.txt

FLOOR_TESTS = $(addprefix tests/,$(addprefix cli/test_,app.py doctor.py probe.py show.py) \
  $(addprefix common/,$(addprefix test_,close.py guard.py log.py telemetry.py threads.py) recording service \
  $(addprefix export/,otlp $(addprefix test_,acceptance.py compression.py console.py files.py json_lines.py redaction.py))) \
  $(addprefix reading/test_,histogram.py reader.py))

install = $(1)/bin/python -m pip install --quiet --no-compile --disable-pip-version-check $(2)

# $(1) environment, $(2) constraints, $(3) what to install, $(4) what to take out again. It is ready only when everything was installed.
# torch comes first, alone and pinned: an open range would fetch a CUDA build of several gigabytes.
define environment
	$(PYTHON) -m venv $(1)
	$(call install,$(1),-c constraints/$(2) torch)
	$(call install,$(1),-c constraints/$(2) $(3))
	$(if $(4),$(1)/bin/python -m pip uninstall --quiet --yes $(4))
	touch $(1)/ready
endef

$(TRL): pyproject.toml constraints/trl.txt
	$(call environment,.venv-trl,trl.txt,$(WITH_NEWEST_TRL))

$(OLDEST): pyproject.toml constraints/trl-oldest.txt
	$(call environment,.venv-trl-oldest,trl-oldest.txt,$(WITH_TRL))

$(VERL): pyproject.toml constraints/verl.txt examples/verl_cpu/pyproject.toml
	$(call environment,.venv-verl,verl.txt,$(WITH_VERL))

$(FLOOR): pyproject.toml constraints/floor.txt
	$(PYTHON) -m venv .venv-floor
	$(call install,.venv-floor,-c constraints/floor.txt $(WITH_NEITHER))
	touch $@

.venv-python%/ready: pyproject.toml
	python$* -m venv .venv-python$*
	$(call install,.venv-python$*,$(WITH_NEITHER))
	touch $@

# No image is trained on, and a torchvision of another build than torch's keeps the hosts from loading.
host = $(call environment,.venv-$(1),$(1).txt,-e . pytest pyyaml $(2),torchvision torchaudio)

.venv-unsloth/ready: pyproject.toml constraints/unsloth.txt
	$(call host,unsloth,unsloth)

.venv-axolotl/ready: pyproject.toml constraints/axolotl.txt
	$(call host,axolotl,axolotl)

.venv-swift/ready: pyproject.toml constraints/swift.txt
	$(call host,swift,ms-swift msgspec)

$(BENCH): pyproject.toml constraints/trl.txt benchmarks/requirements.txt
	$(call environment,.venv-bench,trl.txt,$(WITH_PEERS))
