# Two commands: `make demo` runs a real experiment, `make test` runs the tests. Both set up what they need.
PYTHON ?= python3
VENV ?= .venv
WORKERS ?= 2
BIN = $(VENV)/bin
STAMP = $(VENV)/.installed-$(shell $(PYTHON) -c 'import hashlib; print(hashlib.sha256(open("requirements.lock","rb").read()+open("pyproject.toml","rb").read()).hexdigest()[:12])')

.PHONY: demo test check setup format schemas

$(STAMP): requirements.lock pyproject.toml
	@test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check $$(sed -n 's/^\(uv==[^ ]*\).*/\1/p' requirements.lock)
	$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes -r requirements.lock
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps -e .
	@touch $@

setup: $(STAMP)

demo: setup
	$(BIN)/pairtrial run prereg/demo.yaml
	$(BIN)/pairtrial report prereg/demo.yaml

test: setup
	$(BIN)/python -m pytest -n $(WORKERS)

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
