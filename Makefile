# Every target sets up what it needs by itself: a virtual environment in .venv, with exactly the versions of constraints.txt.
SHELL := /bin/bash -o pipefail
PYTHON ?= python3
BIN := .venv/bin
EXTRAS := dev code keyring local logfire mcp otel web

.PHONY: demo test check check-lint check-format check-types check-imports docs transcripts soak bench format constraints clean bubblewrap chromium compiler

demo: .venv/ready
	@$(BIN)/mixseek demo

# The many processes that tests start would each compile the sources anew where the environment forbids to keep bytecode.
# It is made beforehand: a process whose files may not grow, as on a full disk, would leave it cut off.
test: .venv/ready bubblewrap chromium compiler
	$(BIN)/python -m compileall -q -j 0 src soak
	env -u PYTHONDONTWRITEBYTECODE $(BIN)/pytest -n 4 --dist worksteal

# All at once; what each has to say stands together, and whichever fails, the others are told of too.
check: .venv/ready
	@$(MAKE) --no-print-directory --jobs --keep-going $(if $(filter output-sync,$(.FEATURES)),--output-sync=target) check-lint check-format check-types check-imports

check-lint:
	$(BIN)/ruff check

check-format:
	$(BIN)/ruff format --check

check-types:
	$(BIN)/mypy

check-imports:
	$(BIN)/lint-imports

# The pages that are made from the code: every setting, every option of a metric, every command.
docs: .venv/ready
	$(BIN)/python docs/generate.py

# What people see when something is wrong. Read what changed before you keep it.
transcripts: .venv/ready
	MIXSEEK_WRITE_TRANSCRIPTS=1 $(BIN)/pytest -q tests/cli/test_user_errors.py

# The large counts; minutes, not seconds. What it prints is kept with the date and the command that made it.
soak: .venv/ready bubblewrap compiler
	@mkdir -p docs/evidence
	$(BIN)/python -m soak | tee docs/evidence/soak.txt

bench: .venv/ready
	@$(BIN)/python -m bench

format: .venv/ready
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

# Newest versions within the ranges of pyproject.toml, with hashes and without naming any host.
constraints: .venv/ready
	$(BIN)/pip-compile --quiet --upgrade --generate-hashes --all-extras --strip-extras --allow-unsafe --no-header \
		--no-emit-index-url --no-emit-find-links --no-emit-trusted-host --annotation-style=line \
		--output-file constraints.txt pyproject.toml

# Has a command from Debian's packages: $(1) the command, $(2) the packages it comes with.
define installed
	@command -v $(1) > /dev/null || \
	if [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null; then \
		echo "installing $(2)"; \
		export DEBIAN_FRONTEND=noninteractive; \
		apt-get install -qq -y --no-install-recommends $(2) > /dev/null 2>&1 || \
		{ apt-get update -qq && apt-get install -qq -y --no-install-recommends $(2) > /dev/null; } || true; \
	fi
	@command -v $(1) > /dev/null || echo "$(1) is not there: apt-get install $(2)" >&2
endef

# The sandbox for full Python. Where it is missing and cannot be installed its tests are skipped, and one fails to say so.
bubblewrap:
	$(call installed,bwrap,bubblewrap)

# The browser that opens reports in tests. Where it is missing and cannot be installed its tests are skipped, and one fails to say so.
chromium:
	$(call installed,chromium,chromium fonts-noto-cjk)

# Makes the small library that lets writes fail. Where it is missing and cannot be installed the test that needs it fails.
compiler:
	$(call installed,cc,gcc libc6-dev)

clean:
	rm -rf .venv build dist

# pip itself comes first: only a recent one takes its hashes from a constraints file. The project is installed last, as
# a link to src/, since a directory has no hash.
.venv/ready: constraints.txt pyproject.toml
	@echo "setting up .venv, which takes a minute or two"
	$(PYTHON) -m venv --clear .venv
	sed -n '/^pip==/,/[^\\]$$/p' constraints.txt > .venv/pip.txt
	$(BIN)/pip install --quiet --require-hashes -r .venv/pip.txt
	$(BIN)/python -c "import sys, tomllib; p = tomllib.load(open('pyproject.toml', 'rb'))['project']; \
		print(*p['dependencies'], *(d for e in sys.argv[1:] for d in p['optional-dependencies'][e]), sep='\n')" \
		$(EXTRAS) > .venv/requirements.txt
	$(BIN)/pip install --quiet --require-hashes -c constraints.txt -r .venv/requirements.txt
	$(BIN)/pip install --quiet --no-deps --no-build-isolation --editable .
	touch $@
