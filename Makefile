# `make demo` and `make test` work from a clean clone with Python 3.11 or later, pip and make.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
PIP = .venv/bin/python -m pip install --quiet --disable-pip-version-check

export PIP_CONSTRAINT = constraints.txt

.PHONY: demo test lint docs pages unchanged clean

demo: .venv/installed
	.venv/bin/placecode run lst-sigma --scale quick --device cpu --out runs/demo --resume

test: .venv/installed-dev
	.venv/bin/python -m pytest --numprocesses auto --maxprocesses 8 --dist loadfile

lint: .venv/installed-dev
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy

pages: .venv/installed-dev  # pages and figures that are made from results/
	for name in reproduction beyond evidence recommendation performance; do .venv/bin/python docs/pages/$$name.py || exit 1; done

unchanged: .venv/installed-dev  # BASE=COMMIT: does this checkout give the same numbers?
	.venv/bin/python tests/unchanged.py $(BASE)

docs: .venv/installed-docs
	NO_MKDOCS_2_WARNING=1 .venv/bin/python -m mkdocs build --strict  # not --quiet, which would hide warnings from --strict
	@echo "Open build/site/index.html"

.venv/bin/python:
	$(PYTHON) -c 'import sys; sys.exit("placecode needs Python 3.11 or later; this is " + sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv .venv

.venv/installed: .venv/bin/python pyproject.toml constraints.txt
	$(PIP) --editable .
	touch $@

.venv/installed-dev: .venv/installed
	$(PIP) --editable ".[dev]"
	touch $@

.venv/installed-docs: .venv/installed
	$(PIP) --editable ".[docs]"
	touch $@

clean:
	rm -rf .venv build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
