# make demo   train on two CPU processes, one with a slow input, and find it
# make unit   run the unit tests that need no trace and no process of their own, in parallel: half a minute
# make test   run the unit tests, then those that start real training processes, without the long ones: six minutes
# make test-long  run what make test leaves out: repetitions, fuzzing, planted faults
# make test-torch VERSION=2.6.0  run the fast tests that meet torch with another version of it
# make test-harm  run all of tests/harm, also the long ones: what may happen to a job, and what must not
# make coverage  run the unit tests and show which lines they do not reach
# make test-hta-next  run the tests of HTA with its successor, traceinsight
# make test-browser  run the tests of the report in Chromium, with axe-core; all skips are told
# make docs-pictures  make the pictures of the guide again, from the recorded traces in tests/data
# make check  ruff, mypy and codespell
# make docs   make the pages and tables again that come from the code
# make site   build the documentation site into build/site
# make clean  remove the virtual environment
#
# All that is needed before: python3 with pip, and make. PYTHON=python3.12 chooses another Python; pip's own
# settings hold, e.g. PIP_EXTRA_INDEX_URL with PyTorch's index of CPU builds, which are much smaller.
PYTHON ?= python3
VENV ?= .venv
VENV_HTA_NEXT ?= .venv-hta-next
PYTEST_ARGS ?=

bin := $(VENV)/bin
install := $(bin)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.DEFAULT_GOAL := help
.PHONY: help demo unit test test-long test-harm coverage docs test-hta-next test-browser docs-pictures check clean

help:
	@sed -n 's/^# \(make .*\)/\1/p' Makefile

demo: $(VENV)/.installed
	$(bin)/rankscope demo

# As many processes as CPUs; `make unit WORKERS=0` runs them in one, for a debugger. A file's tests stay together,
# since they share what is expensive to make.
WORKERS ?= auto
parallel = -n $(WORKERS) --dist loadfile
# Launches wait for each other's ranks most of the time: three at once keep two CPUs at work.
LANES ?= 3
# A test run starts some hundred Python processes: our modules are compiled once for them all.
unexport PYTHONDONTWRITEBYTECODE

unit: $(VENV)/.installed-test
	$(bin)/python -m pytest tests/unit -m "not long and not data and not process" $(parallel) $(PYTEST_ARGS)

# How often a launch that failed is tried again. What failed the first time is printed all the same.
RERUNS ?= 0
# Tests that judge by how long something took need the CPUs for themselves, and devices are not shared.
launching = $(bin)/python -m pytest tests/doors tests/dist tests/gpu tests/harm --reruns $(RERUNS)
test: $(VENV)/.installed-test
	$(bin)/python -m pytest tests/unit -m "not long" $(parallel) $(PYTEST_ARGS)
	$(launching) -m "not long and not alone and not gpu" -n $(LANES) --dist loadgroup $(PYTEST_ARGS)
	$(launching) -m "not long and (alone or gpu)" $(PYTEST_ARGS)

test-long: $(VENV)/.installed-test
	$(bin)/python -m pytest -m long $(PYTEST_ARGS)

test-harm: $(VENV)/.installed-test
	$(bin)/python -m pytest tests/harm $(PYTEST_ARGS)

coverage: $(VENV)/.installed-test
	$(bin)/python -m pytest tests/unit -m "not long" $(parallel) --cov --cov-report=term $(PYTEST_ARGS)

# Another torch in an environment of its own: what of us meets torch, and a real launch of two ranks.
VERSION ?= 2.6.0
venv_torch = .venv-torch-$(VERSION)
.PHONY: test-torch
test-torch:
	$(MAKE) VENV=$(venv_torch) $(venv_torch)/bin/python
	grep -v '^torch==' constraints.txt > $(venv_torch)/constraints.txt
	$(venv_torch)/bin/python -m pip install --quiet --disable-pip-version-check -c $(venv_torch)/constraints.txt \
	  'torch==$(VERSION)' -e '.[test]'
	$(venv_torch)/bin/python -m pytest tests/unit/agent tests/unit/launcher tests/doors -m "not long" $(PYTEST_ARGS)

docs: $(VENV)/.installed-test
	$(bin)/python docs/generate.py

.PHONY: site
site: $(VENV)/.installed-test
	$(bin)/python -m pip install --quiet -c constraints.txt mkdocs-material
	$(bin)/python -m mkdocs build --strict

# Two distributions hold the package hta: an environment of its own, where rankscope's dependency gives way.
test-hta-next:
	$(MAKE) VENV=$(VENV_HTA_NEXT) $(VENV_HTA_NEXT)/.installed-hta-next
	$(VENV_HTA_NEXT)/bin/python -m pytest tests/unit/analysis/test_hta_parity.py tests/unit/analysis/test_hta.py \
	  $(PYTEST_ARGS)

test-browser: $(VENV)/.installed-test chromium
	$(bin)/python -m pytest tests/unit/report/test_browser.py -rs $(PYTEST_ARGS)

docs-pictures: $(VENV)/.installed-test chromium
	$(bin)/python docs/pictures.py

.PHONY: chromium
chromium:
	@command -v chromedriver >/dev/null || apt-get install --yes chromium chromium-driver || \
	  { echo "needs Chromium and chromedriver, on Debian the packages chromium and chromium-driver"; exit 1; }

check: $(VENV)/.installed-dev
	$(bin)/ruff check .
	$(bin)/ruff format --check .
	$(bin)/codespell
	$(bin)/mypy
	$(bin)/mypy --config-file benchmarks/mypy.ini benchmarks

clean:
	rm -rf $(VENV) $(VENV_HTA_NEXT)

# Where Python came without ensurepip (Debian splits it off), the pip that is there fills the environment.
$(bin)/python:
	$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
	  $(PYTHON) -m venv --without-pip $(VENV) && $(PYTHON) -m pip --python $(bin)/python install --quiet pip; }

# Stamps: a second call installs nothing. The sources are installed as links, so only these files matter.
$(VENV)/.installed: pyproject.toml constraints.txt | $(bin)/python
	@echo "installing rankscope into $(VENV)"
	$(install) -e .
	@touch $@

$(VENV)/.installed-test: $(VENV)/.installed
	$(install) -e '.[test]'
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed-test
	$(install) -e '.[dev]'
	@touch $@

$(VENV)/.installed-hta-next: $(VENV)/.installed-test constraints-hta-next.txt
	$(bin)/python -m pip uninstall --quiet --yes HolisticTraceAnalysis traceinsight
	$(install) -c constraints-hta-next.txt traceinsight
	@touch $@
