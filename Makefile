# make demo   train on two CPU processes, one with a slow input, and find it
# make test   run the tests
# make test-hta-next  run the tests of HTA with its successor, traceinsight
# make test-browser  run the tests of the report in Chromium, with axe-core; all skips are told
# make docs-pictures  make the pictures of the guide again, from the recorded traces in tests/data
# make check  ruff and mypy
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
.PHONY: help demo test test-hta-next test-browser docs-pictures check clean

help:
	@sed -n 's/^# \(make .*\)/\1/p' Makefile

demo: $(VENV)/.installed
	$(bin)/rankscope demo

test: $(VENV)/.installed-test
	$(bin)/python -m pytest $(PYTEST_ARGS)

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
	$(bin)/mypy

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
