# `make train` and `make test` set everything up in .venv; nothing else is needed beforehand.
PYTHON ?= $(shell command -v python3.11 || command -v python3.12 || command -v python3.13 || \
	command -v python3)
ALGO ?= sl-sac-2
ENV ?= SafetyWalker2dVelocity-v1
STEPS ?= 80000
SEED ?= 0
# Any flags of `slsac train`. Most presets let the multiplier rest for 100,000 steps or more, and a
# shorter run would never be held to its limit: below 300,000 it rests for a third of the run.
THIRD := $(shell expr $(STEPS) / 3 2>/dev/null)
SHORT := $(filter 0,$(shell test "$(THIRD)" -lt 100000 2>/dev/null; echo $$?))
FLAGS ?= $(if $(filter sl-sac-2% ppo-lag% cpo% wcsac%,$(ALGO)),,$(if $(SHORT),--multiplier-warmup-steps $(THIRD)))
RUN ?= runs/$(subst /,-,$(ALGO))-$(ENV)-$(SEED)

BIN := .venv/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check

.PHONY: install train test check format docs bench clean

# Parts that not everybody needs: make install EXTRAS="metadrive ray report"
EXTRAS ?=
# MetaDrive has no release for Python 3.12 and later, where its tests are skipped.
METADRIVE := $(shell $(PYTHON) -c 'import sys; print("metadrive" * (sys.version_info < (3, 12)))')
TESTED_EXTRAS := $(METADRIVE) ray report video export wandb docs

install: .venv/core.installed $(EXTRAS:%=.venv/%.installed)

.venv/core.installed: requirements/core.txt requirements/safety.txt pyproject.toml
	@test -n "$(PYTHON)" || { echo "Python 3.11 to 3.13 is needed; set PYTHON to its path"; exit 1; }
	$(PYTHON) -m venv .venv
	$(PIP) --requirement requirements/safety.txt
	$(PIP) --no-deps --no-build-isolation --editable .
	$(BIN)/slsac setup safety-gymnasium
	@touch $@

.venv/%.installed: requirements/%.txt .venv/core.installed
	$(PIP) --requirement $<
	@touch $@

# The simulator's assets are not in its package.
.venv/metadrive.assets: .venv/metadrive.installed
	$(BIN)/slsac setup metadrive
	@touch $@

# A second `make train` continues an unfinished run, to its own number of steps unless STEPS is given,
# and leaves a finished one alone.
train: .venv/core.installed
	@if [ -f "$(RUN)/config.json" ]; then \
		$(BIN)/slsac resume $(RUN) $(if $(filter command,$(origin STEPS)),--steps $(STEPS)); \
	else \
		$(BIN)/slsac train --algo $(ALGO) --env $(ENV) --steps $(STEPS) --seed $(SEED) --run $(RUN) \
			$(FLAGS); \
	fi

# Two workers, one XLA thread in each. A worker that runs out of tests takes over half of the other's
# rest; until then the tests of a file stay together and share what they have compiled.
test: .venv/dev.installed $(TESTED_EXTRAS:%=.venv/%.installed) $(METADRIVE:%=.venv/%.assets)
	XLA_FLAGS="--xla_cpu_multi_thread_eigen=false" $(BIN)/pytest --numprocesses 2 --dist worksteal

check: .venv/dev.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: .venv/dev.installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The site, in site/index.html: opened from the file system it needs neither a server nor a network.
docs: .venv/docs.installed
	$(BIN)/python -m mkdocs build

bench: .venv/core.installed
	$(BIN)/slsac bench

clean:
	rm -rf .venv build dist site .pytest_cache .mypy_cache .ruff_cache
