# `make demo` and `make test` do all set-up themselves; `make reproduce ARGS="table1 --scale quick"`.
PYTHON ?= python3
BIN := .venv/bin
ARGS ?=

.PHONY: install demo test check bench reproduce
install: .venv/installed
.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt torch numpy
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[study,imaging,cluster,dev]'
	touch $@

demo: install
	$(BIN)/rmdn demo $(ARGS)
test: install
	OMP_NUM_THREADS=1 $(BIN)/pytest -n auto $(ARGS)
check: install
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
bench: install
	$(BIN)/rmdn bench $(ARGS)
reproduce: install
	$(BIN)/rmdn reproduce $(ARGS)
