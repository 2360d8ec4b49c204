# Every target makes its own environment first; with a matching one that takes a fraction of a second.
#   make demo   a real sweep on this machine and its report      make test   everything CI runs
#   make check  format, lint, types and the fast tests           make env    the environment alone
#   make bench  the kernels' micro-benchmarks on this machine    make clean  remove the environment and caches
#   make model  the small model alone                            make lock   regenerate requirements/cpu.lock
#   make gpu-check   on a GPU machine: the kernels' results, synchronization, memory and times (JSON=FILE keeps them)
#   make check-vllm  what the plugin relies on in the installed vLLM (VLLM_WHEEL=FILE or VLLM_VERSION=0.33.0: there, too)

SHELL := /bin/bash
PYTHON ?= python3
VENV ?= .venv
PY = "$(VENV)/bin/python"
MODEL := smollm2-135m-instruct
DEMO_RESULTS ?= results/demo

.PHONY: demo test check bench gpu-check check-vllm lint env model lock clean
.DEFAULT_GOAL := help

.PHONY: help
help:
	@sed -n "2,7s/^# *//p" Makefile

env:
	@command -v "$(PYTHON)" >/dev/null || { echo "env: error: $(PYTHON) not found. Install Python 3.11 or newer, or name it: make env PYTHON=/path/to/python3" >&2; exit 2; }
	@"$(PYTHON)" scripts/bootstrap.py --venv "$(VENV)"

model: env
	@$(PY) -m harness.assets fetch $(MODEL)

# Failed cells (exit status 1) are part of the report; only a refused configuration (2) ends here.
demo: model
	@status=0; $(PY) -m harness sweep +exp=demo || status=$$?; \
	if [ $$status -gt 1 ]; then exit $$status; fi; \
	$(PY) -m harness report "$(DEMO_RESULTS)" && exit $$status

lint: env
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(PY) -m mypy

# A file's tests stay in one process: they share its fixtures. Servers and Ray clusters get the machine to themselves.
FAST := -m "not engine and not ray and not slow" --numprocesses auto --maxprocesses 8 --dist loadfile

check: lint
	$(PY) -m pytest $(FAST)

test: model lint
	$(PY) -m pytest $(FAST)
	$(PY) -m pytest -m "engine or ray or slow"
	env -u TRITON_INTERPRET $(PY) -m hybrid_spark.kernels.aot  # registers and spills on sm_90

bench: env
	$(PY) bench/scan.py
	$(PY) bench/memory.py
	$(PY) bench/edit_distance.py
	$(PY) bench/replay.py
	$(PY) bench/report.py  # a report of 2,000 cells: time, memory, and how often its intervals hold the truth

# The one target without an environment: a GPU machine brings its own torch and Triton. make exits 2 whatever failed; CI
# runs the script, which exits 1 on a failed check and 2 if it cannot run.
gpu-check:
	@"$(PYTHON)" bench/gpu_check.py $(if $(JSON),--json "$(JSON)")

# Downloads hundreds of MB where VLLM_VERSION is given, else nothing.
check-vllm: env
	@$(PY) -m hybrid_spark.vllm_check --installed $(if $(VLLM_WHEEL),"$(VLLM_WHEEL)") $(if $(VLLM_VERSION),--download "$(VLLM_VERSION)")

lock: env
	$(PY) scripts/lock.py

clean:
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist *.egg-info
	@if [ -e "$(VENV)/hybrid-spark-env.json" ]; then rm -rf "$(VENV)"; fi
	find . -name __pycache__ -type d -not -path "./.git/*" -prune -exec rm -rf {} +
