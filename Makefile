# SPDX-License-Identifier: Apache-2.0
# Everything a newcomer needs: `make demo` and `make test`. Both set up what they lack and say what they do.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# A worker of pytest, and each program that a test starts, would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE
# Hosts at a time, on two cores: they mostly wait.
HOSTS ?= 6
# `make package rpm MACHINE=aarch64` writes into dist/aarch64.
MACHINE ?=
# `make package rpm INTERPRETER=standalone` takes the interpreter of python-build-standalone instead of the one that
# `make interpreter` builds. What is not for users is in a directory of its own.
INTERPRETER ?=
# Seconds of `make fuzz` for all targets together; FUZZ names some of them.
FUZZ_SECONDS ?= 600
FUZZ ?=
# `make image BASE=fcos.oci.tar` puts the layer on this OCI archive.
BASE ?=
# `make release SIGN=KEY` signs the RPMs and the sums with this GPG key of the caller.
SIGN ?=
ORIGIN = $(if $(INTERPRETER), --interpreter $(INTERPRETER))
FOR_MACHINE = --out dist$(if $(filter testing,$(INTERPRETER)),/testing)$(if $(MACHINE),/$(MACHINE) --machine $(MACHINE))$(ORIGIN)
STAMP := $(VENV)/.stamp
DOCS_VENV := build/docs-venv
DOCS_STAMP := $(DOCS_VENV)/.stamp
# Those on which `make versions` runs ring 1, if this machine has them and the environment is of another.
PYTHONS ?= 3.11 3.12 3.13 3.14
# .ci/run gives --last-failed here, to run what failed a second time.
PYTEST_OPTIONS ?=
# Each target has its own record of what failed: two of them can run at once.
CACHE ?= .pytest_cache
PYTEST = $(BIN)/pytest -o cache_dir=$(CACHE)/$@ $(PYTEST_OPTIONS)
# Hosts that boot from ostree take minutes, most of them to make their trees: not in `make test`.
OSTREE := integration/trees integration/standins integration/hosts/ostree
# Ring 3 pauses servers and reads clocks: not beside booting hosts. It mostly waits; each worker has its own servers.
# Not in `make test` and `make long`: the first build takes a quarter of an hour. CI runs it where it has the time.
INTERPRETER_TESTS := integration/package/test_source_interpreter.py
# On demand: without KVM for that architecture everything takes minutes.
AARCH64 := integration/hosts/aarch64
RING2 := integration $(addprefix --ignore=,integration/cluster integration/hosts/node integration/hosts/vm $(AARCH64) $(OSTREE) $(INTERPRETER_TESTS))
# Each worker has a control plane and hosts with a kubelet.
API_TESTS = $(PYTEST) -q -n 3 --dist load --maxschedchunk 1 integration/cluster
NODE_TESTS = $(PYTEST) -q --durations 10 -n 2 --dist load --maxschedchunk 1 integration/hosts/node
OSTREE_TESTS = $(PYTEST) -q --durations 5 -n 4 --dist load --maxschedchunk 1 $(OSTREE)
VM_TESTS = $(PYTEST) -q --durations 25 -n 2 --dist load --maxschedchunk 1 integration/hosts/vm
HOST_TESTS = $(PYTEST) -q -n $(HOSTS) --dist load --maxschedchunk 1 $(RING2)
ROOT := $(filter 0,$(shell id -u))
TOOLS := packaging/tools.sh
# What tests of ring 1 need, which are skipped without it. Some of it is in groups of other targets.
UNIT_TOOLS := unit-tests chattr losetup openssl rpmbuild
# Rules for the source and the pages, which need no other part of ring 1.
RULES := $(addprefix tests/,test_docs.py test_errors.py test_guards.py test_imports.py test_licence.py test_names.py features/test_doors.py walkthrough)
RING1 ?= tests $(addprefix --ignore=,$(RULES))
SINCE ?= main
# `make mutants MUTANTS="--seed 3 --count 20 core/plan"`
MUTANTS ?=

.PHONY: help tools demo-tools venv demo demo-shell demo-vm demo-node test test-tools versions check format quick unit kills mutants golden host long ostree ostree-long integration cluster api node cluster-tools node-tools node-long bootupd ostree-container vm vm-long vm-aarch64 interpreter interpreter-twice interpreter-tests package rpm image wheel release bench bench-fallback bench-rest bench-rollout bench-fleet bench-flood bench-fence docs fuzz clean

help: ## this list
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-13s %s\n", $$1, $$2}'

tools: ## the programs of this machine that any target needs, and the command that installs the missing ones
	@$(TOOLS) list

venv: $(STAMP) ## the development environment, from the lock file

$(STAMP): uv.lock pyproject.toml packaging/bootstrap.sh
	@packaging/bootstrap.sh "$(PYTHON)" "$(VENV)"
	@touch $@

# Before the environment, which takes a while: root and all programs.
demo-tools:
	@$(TOOLS) boot setup hosts images package interpreter $(MORE)

demo: demo-tools venv ## one change, planned and applied on a real systemd host made on the spot; demo-node, if its programs are there
	@$(BIN)/python -m integration.demo
	@$(BIN)/python -m integration.demo_node --if-built

demo-shell: demo-tools venv ## a shell on such a host, for docs/tutorial.md
	@$(BIN)/python -m integration.demo_shell

demo-vm: MORE = machines
demo-vm: demo-tools venv ## an update of the OS on a virtual machine that really boots; minutes, where there is no KVM
	@$(BIN)/python -m integration.demo_vm

demo-node: MORE = openssl
demo-node: demo-tools venv ## a change of the kubelet under a running pod, on a real node made on the spot; needs cluster-tools
	@$(BIN)/python -m integration.demo_node

test: export NODEAGENT_SKIPPED = $(CURDIR)/build/skipped.txt
test: test-tools ## rings 1 and 2 at once: pure, protocols, and a real systemd host in a container
	@rm -f $$NODEAGENT_SKIPPED
	@tests/beside.sh build/host.log $(MAKE) --no-print-directory host -- $(MAKE) --no-print-directory unit
	@echo "make test: rings 1 and 2 passed; $$($(BIN)/python -m tests.support.skips $$NODEAGENT_SKIPPED)"

test-tools: venv
	@mkdir -p build
	@$(TOOLS) $(if $(ROOT),install,missing) $(UNIT_TOOLS) || echo "ring 1 skips the tests that need these"
	@$(TOOLS) $(if $(ROOT),install,boot) hosts images package interpreter package-tests || echo "ring 2 skips what needs that"

unit: venv ## ring 1 without its long tests, in minutes; a part of it with RING1=tests/core
	@$(PYTEST) -q -n 3 --dist worksteal -m "not long" $(RING1)

kills: venv ## all of ring 1, with the kills at every effect, of which each Python takes a third elsewhere
	@NODEAGENT_EVERY_KILL=1 $(PYTEST) -q -n 4 --dist worksteal $(RING1)

quick: venv ## ruff, mypy and the tests of ring 1 nearest to what changed since main; half a minute. SINCE=BRANCH
	@$(BIN)/python -m tests.quick --since "$(SINCE)"

mutants: venv ## a random sample of decisions, each taken away once, and whether the tests that reach it notice
	@$(BIN)/python -m tests.mutants $(MUTANTS)

golden: venv ## write the golden texts below tests/golden again; review the difference
	@rm -f tests/golden/*.txt tests/features/*/golden/*.txt
	@NODEAGENT_UPDATE_GOLDEN=1 $(PYTEST) -q tests/cli tests/agent/report tests/core/test_hints.py tests/report/test_motd.py tests/features/*/test_cli.py tests/features/test_words.py tests/features/test_json.py
	@git --no-pager diff --stat -- tests/golden tests/features

host: venv ## ring 2, without ostree, as `make test` runs it
	@$(HOST_TESTS) -m "not long"

long: venv ## ring 2, what `make test` has no time for: most of the kills, power cuts, the report in a browser, RPM, aarch64
	@$(HOST_TESTS) -m long

ostree: venv ## ring 2, the part of it that boots from ostree: OS updates, power cuts
	@$(OSTREE_TESTS) -m "not long"

ostree-long: venv ## ring 2 on ostree, the long part: the layer in an image, a transaction that never ends
	@$(OSTREE_TESTS) -m long

cluster-tools: venv ## kube-apiserver, etcd, kubectl drain and the kubelet for ring 3, found or built (minutes, once)
	@$(BIN)/python -m integration.cluster.programs

node-tools: venv ## the real crictl for node-long, built (minutes, once); the rest is in cluster-tools
	@$(BIN)/python -m integration.cluster.programs crictl

bootupd: venv ## the real bootupd for one test of long, built with cargo (ten minutes, once)
	@$(BIN)/python -m integration.hosts.container.real_bootupd

ostree-container: venv ## the real `ostree container` for the tests of bootc hosts, built with cargo (three minutes of a core, once)
	@$(BIN)/python -m integration.trees.ostree_container

# Two targets: where one failed, .ci/run repeats what failed in it, and still runs the other.
cluster: venv ## ring 3: a real API server, and nodes with a real kubelet
	@$(MAKE) --no-print-directory -k -j1 api node

api: venv ## ring 3, the part on a real API server and etcd
	@$(API_TESTS) -m "not long"

node: venv ## ring 3, the part on nodes with a real kubelet
	@$(NODE_TESTS) -m "not long"

node-long: venv ## ring 3, the long part: changes and reboots of a control plane of three nodes, static pods as members, 5,000 Nodes
	@$(API_TESTS) -m long
	@$(NODE_TESTS) -m long

vm: venv ## ring 4: a booted ostree system in QEMU (the first run makes its disks, minutes)
	@$(VM_TESTS) -m "not long"

vm-long: venv ## ring 4, the long part: a full /boot, power cuts at chance moments, everything on XFS, soft reboots, SELinux, a TPM
	@$(VM_TESTS) -m long

vm-aarch64: venv ## ring 4 on aarch64, emulated: the package for it, a restart, a reboot, another OS; minutes, the first run more
	@$(PYTEST) -q --durations 10 $(AARCH64)

fuzz: venv ## coverage-guided fuzzing of all that reads input from outside, FUZZ_SECONDS=600; needs the wheel of atheris
	@VIRTUAL_ENV=$(CURDIR)/$(VENV) $(BIN)/uv sync --frozen --inexact --all-groups --no-group docs --quiet --python $(BIN)/python
	@$(BIN)/python -m integration.fuzz --seconds $(FUZZ_SECONDS) $(FUZZ)

# The longest first: `make -j2 integration` runs virtual machines beside the rings that mostly wait.
integration: vm-long cluster node-tools node-long bootupd ostree-container ostree ostree-long kills long vm versions fuzz ## the rings that take longer, or need more than this machine has at first: see cluster-tools
	@echo "make integration: rings 3 and 4, and the long parts of rings 1 and 2, passed"

versions: venv ## ring 1 on every other supported Python of this machine
	@packaging/versions.sh $(VENV) "$(PYTHONS)" -o cache_dir=$(CACHE)/$@ $(PYTEST_OPTIONS)

check: venv ## ruff, mypy --strict, import contract, dead code, words of the style guide, the tests of such rules
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache
	@$(BIN)/vulture
	@$(BIN)/uv lock --check --quiet
	@$(BIN)/python docs/words.py
	@$(PYTEST) -q -n 2 $(RULES)
	@echo "make check: clean"

format: venv ## rewrite to the project's format
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

interpreter: venv ## the interpreter of releases, built from Debian's source packages into the cache; as root, minutes, once
	@$(BIN)/python packaging/build_interpreter.py

interpreter-twice: venv ## the same, built again and compared byte by byte
	@$(BIN)/python packaging/build_interpreter.py --twice

interpreter-tests: interpreter ## tests of the package with the interpreter of releases
	@$(PYTEST) -q $(INTERPRETER_TESTS)

package: venv ## the self-contained tree, as tar and as sysext image, in dist/
	@$(BIN)/python packaging/build.py $(FOR_MACHINE)

rpm: venv ## the package as an RPM, and one for the host's Python, in dist/, checked by rpmlint
	@$(BIN)/python packaging/build_rpm.py $(FOR_MACHINE)

image: venv ## the package as the layer of an OCI image, in dist/; on the OCI archive BASE if that is given
	@$(BIN)/python packaging/build_image.py $(FOR_MACHINE)$(if $(BASE), --base $(BASE))

wheel: venv ## an ordinary wheel, and the packages it requires as requirements.txt with their hashes, in dist/
	@$(BIN)/uv build --wheel --out-dir dist --quiet
	@$(BIN)/uv export --frozen --no-dev --no-emit-project --no-header --quiet --output-file dist/requirements.txt >/dev/null
	@echo "make wheel: see dist/"

release: venv ## all artefacts of the last commit, built twice and compared, in dist/release
	@$(BIN)/python packaging/release.py --out dist/release$(if $(MACHINE),-$(MACHINE) --machine $(MACHINE))$(ORIGIN)$(if $(SIGN), --sign $(SIGN))

bench: venv ## benchmarks; each prints JSON and judges by ratios
	@for b in integration/bench/[a-z]*.py; do $(BIN)/python $$b; done

bench-fallback: venv ## seconds of a fallback by a soft and by a full reboot, on a test host; a minute
	@$(BIN)/python -m integration.bench.fallback

bench-rest: venv ## memory before and after 300 updates, and what an idle daemon costs, on a test host; some minutes
	@$(BIN)/python -m integration.bench.rest$(ORIGIN)

bench-rollout: venv ## what clients notice while changes go through a control plane of three nodes; some minutes
	@$(BIN)/python -m integration.bench.rollout

bench-fleet: venv ## what a fleet costs its API server while it waits, is updated and rests, also of thousands; some minutes
	@$(BIN)/python -m integration.bench.fleet --server 30,120,300

bench-flood: venv ## how much longer an update takes while users read the history without end, on a test host; a minute
	@$(BIN)/python -m integration.bench.flood

bench-fence: venv ## staging beside etcd on a slow disk, with and without the fence; half an hour, in a virtual machine
	@$(BIN)/python -m integration.bench.fence --out dist/bench-fence >/dev/null

docs: $(DOCS_STAMP) ## regenerate what the docs take from the code, and build the site in build/site
	@$(BIN)/python docs/generate.py
	@NO_MKDOCS_2_WARNING=1 $(DOCS_VENV)/bin/mkdocs build --strict --clean 2>&1 | { grep -v "^INFO" || true; }
	@echo "make docs: see build/site/index.html, which needs no web server"

# mkdocs has an environment of its own: only this target needs it.
$(DOCS_STAMP): $(STAMP)
	@echo "setup: mkdocs from uv.lock in $(DOCS_VENV)"
	@UV_PROJECT_ENVIRONMENT=$(DOCS_VENV) $(BIN)/uv sync --frozen --only-group docs --quiet --python $(BIN)/python
	@touch $@

clean: ## remove what was built here (the cache in the user's cache directory stays)
	@rm -rf build dist $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
