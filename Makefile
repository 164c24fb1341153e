# Every command of the project. `make help` lists them.
#
# A machine needs Python 3.11 or newer and make; the rest is installed into .venv. The stamps in it make
# installation incremental: they are older than pyproject.toml or constraints.txt only if those changed.

# The first Python that is new enough; python3 if none is, so that the message below names it.
PYTHON ?= $(or $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done),python3)
LISTEN ?= 127.0.0.1:9092
DATA_DIR ?= ./penstock-data
JOBS ?= 4
FUZZ_SECONDS ?= 600
MINUTES ?= 5
SEEDS ?= 1000
FROM ?= 0

BIN := .venv/bin
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
# An editable install is never compiled, so it needs nothing that compiles.
EDITABLE_INSTALL := HATCH_BUILD_NO_HOOKS=true $(PIP_INSTALL)
MADE := .venv/.made
INSTALLED := .venv/.installed
INSTALLED_BUILD := .venv/.installed-build
INSTALLED_DEV := .venv/.installed-dev
CODE := $(wildcard src tests tools bench examples)
COMPILED := build/compiled
COMPILED_MADE := build/.compiled
PACKAGE ?= sources
SIM := $(if $(filter compiled,$(PACKAGE)),PYTHONPATH=$(COMPILED)) $(BIN)/python -m tests.sim.cluster
# What is measured is what users get: the compiled package, before the sources of the checkout.
BENCH := PYTHONPATH=$(COMPILED) $(BIN)/python
# Pytest with second chances, which are counted from when make started.
STARTED := $(shell date +%s)
SUITE = $(BIN)/python -m tools.suite --since $(STARTED) -n $(JOBS) --durations=25
TESTED_COMPILED := $(addprefix tests/unit/,controlling coordinating hot_codecs log net observe partitions records replica serving share) \
	$(addprefix tests/unit/api/test_,dispatcher.py metadata_pieces.py sasl_gate.py unread_answers.py wide_requests.py) \
	tests/sim/cluster/test_cluster.py \
	$(addprefix tests/interop/test_,confluent.py raw_fetch.py raw_produce.py cluster_failover.py transactions_basic.py)
# What differs in the compiled package is the node, not its clients: of the fail-overs by four clients one is enough.
OTHER_CLIENTS := $(foreach client,kafka-python aiokafka java,$(foreach test,test_a_killed_leader test_a_rolling_restart, \
	'tests/interop/test_cluster_failover.py::$(test)[$(client)]'))
# Nor are the decisions about each API, beside those of the doors that are compiled.
OTHERS_COMPILED := $(OTHER_CLIENTS) $(filter-out $(TESTED_COMPILED),$(wildcard tests/unit/api/test_*.py))

# Every node, command and Spark worker of the tests is a process of its own: without bytecode on disk each of
# them compiles all that it imports, which is half of its start.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help run second-chances test test-all test-apache test-compiled test-compiled-others test-long test-rotated test-peers fmt fmt-check lint lint-type-compile type java unit interop chaos sim fuzz bench bench-cluster bench-peers bench-scale bench-security bench-spark compiled wheels profile docs picture clean iproute peers postgresql prometheus

help:  ## list the commands
	@grep -hE '^[a-z-]+:.*## ' $(firstword $(MAKEFILE_LIST)) | sed -E 's/^([a-z-]+):.*## /\1\t/' \
		| while IFS="$$(printf '\t')" read -r name text; do printf '  make %-14s %s\n' "$$name" "$$text"; done

run: $(INSTALLED) $(if $(filter compiled,$(PACKAGE)),$(COMPILED_MADE))  ## start a node on LISTEN (127.0.0.1:9092) with its data in DATA_DIR (./penstock-data)
	@echo 'When the node is ready, publish and read the first message in another terminal:'
	@echo '  echo "hello, world" | $(BIN)/penstock topic produce greetings --create -b $(LISTEN)'
	@echo '  $(BIN)/penstock topic consume greetings -b $(LISTEN)'
	@$(if $(filter compiled,$(PACKAGE)),:,echo 'This node runs the plain sources. Twice as quick, after a minute or two of compiling: make run PACKAGE=compiled')
	@$(if $(filter compiled,$(PACKAGE)),PYTHONPATH=$(COMPILED)) exec $(BIN)/penstock serve --listen $(LISTEN) --data-dir $(DATA_DIR)

# Each run of the suite ends with the second chances since make was started: the last shows all of them.
test: fmt-check lint-type-compile java iproute postgresql prometheus  ## what a commit has to pass: format, lint, types, layers, tests
	$(SUITE) --rotation today -m 'not peers and not long and not compiled'
	@$(MAKE) --no-print-directory test-compiled STARTED=$(STARTED)

test-all: test test-rotated test-long test-compiled-others test-peers  ## `make test`, and the tests that it leaves out

second-chances: $(INSTALLED_DEV)  ## which tests failed beside others, and why if it is known, as far as it is recorded here
	@$(BIN)/python -m tools.suite --report --since 0

# The rooms whose modules are compiled, and real clients, against the compiled package.
test-compiled: $(COMPILED_MADE)
	PYTHONPATH=$(COMPILED) $(SUITE) --rotation today -m 'not uncompiled' $(OTHER_CLIENTS:%=--deselect %) $(TESTED_COMPILED)

test-compiled-others: $(COMPILED_MADE) java
	PYTHONPATH=$(COMPILED) $(SUITE) -m 'not uncompiled' $(OTHERS_COMPILED)

test-rotated: $(INSTALLED_DEV) java iproute
	$(SUITE) --rotation others -m 'not peers and not long'

test-long: $(INSTALLED_DEV) java
	$(SUITE) -m long

# mypy and the compiler take a core each: they work side by side, before the tests take them all.
lint-type-compile: $(INSTALLED_DEV)
	@$(MAKE) --no-print-directory compiled & compiling=$$!; \
		$(MAKE) --no-print-directory lint type; checked=$$?; \
		wait $$compiling && exit $$checked

test-apache: $(INSTALLED_DEV) java  ## Apache Kafka's own integration tests here and there: a table, and docs/apache-suite.md
	$(BIN)/python -m tests.apache --page

test-peers: $(INSTALLED_DEV) java peers  ## how `make bench-peers` starts and speaks to NATS, RabbitMQ, Redis and Kafka
	$(SUITE) -m peers

fmt: $(INSTALLED_DEV)  ## format the code and fix what ruff can fix
	$(BIN)/ruff format $(CODE)
	$(BIN)/ruff check --fix $(CODE)

fmt-check: $(INSTALLED_DEV)
	$(BIN)/ruff format --check $(CODE)

lint: $(INSTALLED_DEV)  ## ruff, and import-linter for the floors of the house
	$(BIN)/ruff check $(CODE)
	$(BIN)/lint-imports

type: $(INSTALLED_DEV)  ## mypy --strict, by the oldest and by the newest Python: wheels are compiled for both
	$(BIN)/mypy
	$(BIN)/mypy --python-version 3.14

java: $(INSTALLED_DEV)  ## fetch Apache Kafka's jars for the tests that need them
	@$(BIN)/python tools/fetch_java.py \
		|| echo 'The jars of Apache Kafka could not be fetched; the tests that need them are skipped.'

unit: $(INSTALLED_DEV)  ## the quick tests
	$(BIN)/pytest -n $(JOBS) tests/unit

interop: $(INSTALLED_DEV) java postgresql prometheus  ## real Kafka clients and tools against a node
	$(BIN)/pytest -n $(JOBS) tests/interop

chaos: $(INSTALLED_DEV) iproute  ## faults upon a cluster under load for MINUTES (5), and a table of what they did
	$(BIN)/python -m tests.chaos.cluster --minutes $(MINUTES)

iproute:
	@command -v ip >/dev/null \
		|| { [ "$$(id -u)" = 0 ] && apt-get update -q && apt-get install -q -y --no-install-recommends iproute2; } \
			>/dev/null 2>&1 \
		|| echo 'There is no iproute2 here and it cannot be installed; network faults go through proxies.'

postgresql:
	@command -v initdb >/dev/null || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 \
		|| { [ "$$(id -u)" = 0 ] && apt-get update -q && apt-get install -q -y --no-install-recommends postgresql; } \
			>/dev/null 2>&1 \
		|| echo 'There is no PostgreSQL server here and it cannot be installed; its test is skipped.'

# Some packages start what they install; RUNLEVEL=1 tells Debian's scripts not to.
prometheus:
	@command -v prometheus >/dev/null && command -v promtool >/dev/null \
		|| { [ "$$(id -u)" = 0 ] && apt-get update -q \
			&& RUNLEVEL=1 apt-get install -q -y --no-install-recommends prometheus; } >/dev/null 2>&1 \
		|| echo 'There is no Prometheus here and it cannot be installed; the tests of the generated alerts are skipped.'

peers:
	@PATH="$$PATH:/usr/sbin"; for name in nats-server rabbitmq-server redis-server; do \
		command -v $$name >/dev/null \
			|| { [ "$$(id -u)" = 0 ] && apt-get update -q \
				&& RUNLEVEL=1 apt-get install -q -y --no-install-recommends $$name; } >/dev/null 2>&1 \
			|| echo "There is no $$name here and it cannot be installed; it is reported as missing."; \
	done

# Bugs are put into the sources, so the compiled package has none to find.
sim: $(INSTALLED_DEV) $(if $(filter compiled,$(PACKAGE)),$(COMPILED_MADE))  ## SEEDS (1000) whole clusters with faults, simulated, from seed FROM (0); with transactions; with share groups; all mutants (PACKAGE=compiled: none)
	$(SIM) --seeds $(SEEDS) --from $(FROM) --jobs $(JOBS) --paths
	$(SIM) --seeds $(SEEDS) --from $(FROM) --jobs $(JOBS) --paths --transactions
	$(SIM) --seeds $(SEEDS) --from $(FROM) --jobs $(JOBS) --paths --shares
	$(if $(filter compiled,$(PACKAGE)),,$(SIM) --mutants all)

fuzz: $(INSTALLED_DEV)  ## random input to codec and connection for FUZZ_SECONDS (600)
	FUZZ_SECONDS=$(FUZZ_SECONDS) $(BIN)/pytest --timeout=0 -n $(JOBS) -k fuzz tests

compiled: $(COMPILED_MADE)  ## compile the hot modules with mypyc: a wheel in build/wheels, unpacked in build/compiled

wheels: $(INSTALLED)  ## a compiled wheel in dist for each of VERSIONS (3.11,3.12,3.13,3.14), each tried in a fresh venv
	$(BIN)/python tools/wheels.py $(if $(VERSIONS),--versions $(VERSIONS))

bench: $(COMPILED_MADE)  ## measure publishing, consuming, latency, start and memory; results in build/bench
	$(BENCH) bench/run.py

bench-cluster: $(COMPILED_MADE)  ## measure three nodes: fail-over, restarts, replication, transactions, idling; build/bench/cluster.md
	$(BENCH) -m bench.cluster

bench-peers: $(COMPILED_MADE) java peers  ## measure Penstock beside Kafka, NATS, RabbitMQ, Redis, in turns; build/bench/peers.md
	$(BENCH) -m bench.peers

bench-scale: $(COMPILED_MADE)  ## measure what topics, partitions and connections cost as they grow; build/bench/scale.md
	$(BENCH) -m bench.scale

bench-security: $(COMPILED_MADE) java  ## measure TLS beside Kafka, ACLs, storms of logins, idle encrypted connections; build/bench/security.md
	$(BENCH) -m bench.security

bench-spark: $(COMPILED_MADE) java  ## measure pipelines on Spark beside Spark's own connector; build/bench/spark.md
	$(BENCH) -m bench.spark

profile: $(INSTALLED_DEV)  ## sample the produce, fetch and replication paths; flame graphs in build/profile
	$(BIN)/python -m bench.profile

docs: $(INSTALLED)  ## write anew the pages that are generated from the code
	$(BIN)/python -m penstock.config.settings_doc > docs/settings.md.new
	mv docs/settings.md.new docs/settings.md
	$(BIN)/python -m penstock.wire.support_doc penstock.api.handlers > docs/protocol-support.md.new
	mv docs/protocol-support.md.new docs/protocol-support.md
	$(BIN)/python -m penstock.spark.client_settings_doc > docs/kafka-options.md.new
	mv docs/kafka-options.md.new docs/kafka-options.md

picture: $(INSTALLED)  ## draw the picture of the README anew
	$(BIN)/python tools/picture.py

clean:  ## remove what was installed, built and cached; the data of `make run` stays
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find src tests tools bench examples -name __pycache__ -type d -prune -exec rm -rf {} +

$(MADE):
	@command -v $(PYTHON) >/dev/null || { \
		echo 'There is no $(PYTHON) on this machine: install Python 3.11 or newer,' \
			'or say where it is: make PYTHON=/path/to/python3 ...' >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "Penstock needs Python 3.11 or newer, but $(PYTHON) is $$($(PYTHON) -V 2>&1):" \
			'say where a newer one is: make PYTHON=python3.12 ...' >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		echo 'The module venv of $(PYTHON) is missing:' \
			'install it (Debian, Ubuntu: apt install python3-venv) and try again.' >&2; exit 1; }
	@echo 'Making the virtual environment .venv'
	@$(PYTHON) -m venv .venv
	@touch $@

$(INSTALLED): pyproject.toml constraints.txt | $(MADE)
	@echo 'Installing Penstock into .venv'
	@$(EDITABLE_INSTALL) -e .
	@touch $@

$(INSTALLED_BUILD): constraints.txt | $(INSTALLED)
	@$(PIP_INSTALL) build hatchling mypy setuptools
	@touch $@

$(INSTALLED_DEV): pyproject.toml constraints.txt | $(MADE)
	@echo 'Installing Penstock and what its tests need into .venv'
	@$(EDITABLE_INSTALL) -e '.[dev,spark,lake,bench]'
	@touch $(INSTALLED) $(INSTALLED_BUILD) $@

# Without isolation: what the build needs is in the environment, in the versions of the constraints.
$(COMPILED_MADE): pyproject.toml tools/compile_hook.py $(shell find src/penstock -name '*.py') $(INSTALLED_BUILD)
	@echo 'Compiling the hot modules'
	@rm -rf build/wheels $(COMPILED)
	@mkdir -p build
	@PENSTOCK_COMPILE=1 $(BIN)/python -m build --wheel --no-isolation --outdir build/wheels . > build/compiled.log 2>&1 \
		|| { tail -20 build/compiled.log; echo 'Is there a C compiler? (Debian, Ubuntu: apt install gcc)'; exit 1; }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --target $(COMPILED) build/wheels/*.whl
	@touch $@
