# `make demo` (hear it), `make check` (while you work), `make test` (what CI runs). Each sets up what it needs first.
VENV ?= .venv
# Whose pip.conf says `user = true` has it ask for what an environment, or a folder, cannot have.
export PIP_USER := 0
# A container may forbid bytecode to be kept, and then each of some hundred processes would compile all that it imports.
export PYTHONDONTWRITEBYTECODE :=
BIN := $(VENV)/bin
BASE := $(VENV)/.base
READY := $(VENV)/.ready
DEV := $(VENV)/.dev
CHROMIUM := $(VENV)/.chromium
PROGRAMS := $(VENV)/.programs
TYPESCRIPT := $(VENV)/.typescript
NODE := $(VENV)/.javascript $(VENV)/.bundlers
RAY := $(VENV)/ray
FRAMEWORKS := $(VENV)/pipecat $(VENV)/livekit

PYTEST := $(BIN)/pytest --numprocesses auto --maxprocesses 8 --dist loadfile
# Below tests/unit, and not in `make check`: kernels under Triton's interpreter, benches, checkpoints, whole engines,
# files that start processes, and files that compute for seconds.
SLOW := bench cli/test_doctor_as_start.py deploy/test_setup.py test_tiny_training.py engine/audio/test_encoder_*.py \
	engine/checkpoint engine/backends/disaggregated/test_hangs.py \
	engine/load engine/core/test_heard_first.py \
	engine/core/test_out_of_memory.py engine/core/test_pipeline_lanes.py \
	engine/core/test_self_scheduling_llm.py \
	engine/*/cuda engine/llm/cpu engine/backends/tensorrt engine/voices/test_maker.py engine/test_additions.py \
	engine/families/stepaudio2/test_convert.py

# Whole or not at all: a folder that pip has filled by half would be taken for a whole one.
define install-apart
@rm -rf $@
@for attempt in 1 2; do rm -rf $@.part && $(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check \
	--no-deps --target $@.part -r $< && touch $@.part && mv $@.part $@ && exit; done; exit 1
endef

.PHONY: help demo check test setup lint format types imports collected quick budget unit disturbed soak packages serve doctor bench clean

help:  ## list the targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

$(BASE): deploy/setup.sh
	@deploy/setup.sh $(VENV)
	@touch $@

$(READY) $(DEV): pyproject.toml models/pyproject.toml constraints.txt deploy/gpu-versions.txt deploy/setup_packages.sh | $(BASE)
$(READY):
	@deploy/setup_packages.sh $(VENV) server
	@touch $@

# Only for those who change the code: linters, type checkers, browsers' drivers, other vendors' clients. And the server.
$(DEV):
	@deploy/setup_packages.sh $(VENV) server,dev
	@touch $(READY) $@

demo: $(READY)  ## stream a paragraph into the tiny model and hear it: demo.wav, demo.opus, a timeline
	@$(BIN)/python -m voicegate.bench.demo

check: lint types imports quick packages budget  ## while you work: lint, types, import contracts, the quick unit tests; and the tree's size

test:  ## before you push: everything that needs no GPU
	@$(MAKE) --no-print-directory --jobs=3 setup lint types imports collected # downloads wait, and for different things
	@$(MAKE) --no-print-directory unit

setup: $(DEV) $(CHROMIUM) $(PROGRAMS) $(TYPESCRIPT) $(NODE) $(FRAMEWORKS)

lint: $(DEV)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/python -m tests.prose

format: $(DEV)  ## rewrite files the way `make lint` wants them
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

types: $(DEV)
	$(BIN)/mypy

imports: $(DEV)
	$(BIN)/lint-imports

# One behind the other: apt-get is locked while it works.
$(CHROMIUM): deploy/setup_chromium.sh | $(BASE)
	@deploy/setup_chromium.sh
	@touch $@

$(PROGRAMS): deploy/setup_programs.sh | $(CHROMIUM)
	@deploy/setup_programs.sh
	@touch $@

# Behind that, which brings npm.
$(TYPESCRIPT): deploy/setup_typescript.sh | $(PROGRAMS)
	@deploy/setup_typescript.sh $(VENV)
	@touch $@

$(VENV)/.javascript: tests/integration/javascript/package-lock.json
$(VENV)/.bundlers: tests/browser/bundlers/package-lock.json
$(NODE): deploy/setup_node.sh | $(PROGRAMS)
	@deploy/setup_node.sh $(VENV) $(patsubst %/,%,$(dir $(filter %.json,$^)))
	@touch $@

$(FRAMEWORKS): $(VENV)/%: tests/integration/%.txt $(DEV)
	$(install-apart)

$(RAY): tests/soak/ray.txt $(DEV)
	$(install-apart)

# All that tests import is compiled by this, once: workers that begin together would each compile it for themselves.
collected: $(DEV)
	@$(BIN)/pytest --collect-only -qq >$(VENV)/collected || { tail -n 40 $(VENV)/collected; exit 1; }

# Five tests that took longest are named: one of a second or more belongs in SLOW.
quick: $(DEV)
	$(PYTEST) -m "not soak" --durations 5 --durations-min 1 $(SLOW:%=--ignore-glob='tests/unit/%') tests/unit

budget: $(DEV)  ## lines by folder, beside what they may be
	@$(BIN)/python -m voicegate.bench.budget

unit: setup
	$(PYTEST) -m "not gpu and not soak"

disturbed: setup  ## the same tests, with sockets' events late and in another order (tests/support/disturbance.py)
	$(PYTEST) -p tests.support.disturbance -m "not gpu and not soak"

soak: $(DEV) $(PROGRAMS) $(RAY)  ## the long tests, some minutes; as root with debootstrap the Dockerfile and the quick start too: half an hour, 8 GB
	ONEDNN_PRIMITIVE_CACHE_CAPACITY=1 $(BIN)/pytest -p tests.soak.keeping -m soak # torch's kernels by shape, which would look like a leak

packages: $(DEV)  ## all that is published, into dist/, checked as PyPI and npm would
	@deploy/packages.sh $(VENV)

serve: $(READY)  ## run the gateway on ws://127.0.0.1:8080/v1/stream
	@$(BIN)/voicegate serve

doctor: $(READY)  ## check this machine
	@$(BIN)/voicegate doctor

bench: $(READY)  ## time to first audio and real-time factor by stage, on the CPU
	$(BIN)/python -m voicegate.bench.engine --json build/engine-cpu.json

clean:
	rm -rf $(VENV) dist build *.egg-info models/build models/*.egg-info demo.wav demo.opus
