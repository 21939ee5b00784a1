# `make demo` and `make test` install missing prerequisites first.

ARCH     := $(shell uname -m)
# The architecture's name in the target triple.
MACHINE  := $(patsubst amd64,x86_64,$(patsubst arm64,aarch64,$(ARCH)))
MUSL     := $(MACHINE)-unknown-linux-musl
STATIC   := target/$(MUSL)
PACKAGES := iptables nftables containerd runc containernetworking-plugins iproute2 util-linux \
            procps musl-tools protobuf-compiler gcc g++ strace conmon skopeo
# What is installed or expensive to build, for all checkouts on this machine, below the version or the digest of its sources.
export TOOLS := $(HOME)/.cache/istio-cni-tools
# Only Cargo makes `target`: it marks a directory as its own only if it has made it.
PACKAGES_LOG := $(TOOLS)/log/packages.log
COMPILED     := $(TOOLS)/compiled
# Programs of other projects: sources, and paths, which the suites read.
CNITOOL_MODULE  := github.com/containernetworking/cni/cnitool@v1.3.0
HELM_MODULE     := helm.sh/helm/v3/cmd/helm@v3.19.5
PROMTOOL_MODULE := github.com/prometheus/prometheus@v0.313.5
# containerd 2, CNI plugins that support STATUS, and CRI-O. Each is built with the requirements of its own go.mod.
CONTAINERD2_MODULES := github.com/containerd/containerd/v2@v2.1.9 github.com/containernetworking/plugins@v1.9.1
CRIO_MODULE     := github.com/cri-o/cri-o@v1.34.0
# Multus' thin plugin, and the program of its DaemonSet that writes its configuration.
MULTUS_MODULE   := gopkg.in/k8snetworkplumbingwg/multus-cni.v4@v4.2.2
# A sandbox with a network stack of its own.
GVISOR_MODULE   := gvisor.dev/gvisor@v0.0.0-20260905035102-160fafc42237
KUBE_DIR        := tests/cluster/kube
# The checks of accessibility in the suite browser, with the digest of the package's archive.
AXE_PACKAGE     := axe-core@4.14.1
AXE_SHA512      := 1477dafa598d8d065f273d6af302aa203c02e83131707b7fa648cd41bd3d6b734f8c22a0dab86ee6a6f64b8afbe804b214d36db85a2826965edfb3a0b9d546b5
export CNITOOL     := $(TOOLS)/$(subst /,-,$(CNITOOL_MODULE))/cnitool
export HELM        := $(TOOLS)/$(subst /,-,$(HELM_MODULE))/helm
export PROMTOOL    := $(TOOLS)/$(subst /,-,$(PROMTOOL_MODULE))/promtool
export KUBE        := $(TOOLS)/kube-$(shell cat $(addprefix $(KUBE_DIR)/,go.mod go.sum main.go) | sha256sum | cut -c1-16)/kube
export CONTAINERD2 := $(TOOLS)/containerd2-$(shell echo $(CONTAINERD2_MODULES) | sha256sum | cut -c1-16)
export CRIO        := $(TOOLS)/$(subst /,-,$(CRIO_MODULE))
export MULTUS      := $(TOOLS)/$(subst /,-,$(MULTUS_MODULE))
export GVISOR      := $(TOOLS)/$(subst /,-,$(GVISOR_MODULE))
export AXE         := $(TOOLS)/$(AXE_PACKAGE)/axe.min.js
CARGO_TOOL      = $(TOOLS)/$(1)/bin/$(firstword $(subst @, ,$(1)))
CARGO_DENY     := $(call CARGO_TOOL,cargo-deny@0.20.2)
CARGO_MACHETE  := $(call CARGO_TOOL,cargo-machete@0.9.2)
CARGO_FUZZ     := $(call CARGO_TOOL,cargo-fuzz@0.13.2)
# Tests, benches and the demo run the shipped programs.
export ISTIO_CNI := $(CURDIR)/$(STATIC)/plugin/istio-cni
export ISTIO_IPTABLES := $(CURDIR)/$(STATIC)/plugin/istio-iptables
export INSTALL_CNI := $(CURDIR)/$(STATIC)/release/install-cni
export SIDECAR_INJECTOR := $(CURDIR)/$(STATIC)/release/sidecar-injector
export ISTIO_CNICTL := $(CURDIR)/$(STATIC)/release/istio-cnictl
# The compiler of ring's C code for the static target.
ifeq ($(MACHINE),$(shell uname -m))
export CC_$(subst -,_,$(MUSL)) := musl-gcc
else
PACKAGES += gcc-$(subst _,-,$(MACHINE))-linux-gnu libc6-dev-$(patsubst x86_64,amd64,$(patsubst aarch64,arm64,$(MACHINE)))-cross
export CC_$(subst -,_,$(MUSL)) := $(MACHINE)-linux-gnu-gcc
export CARGO_TARGET_$(shell echo $(MUSL) | tr a-z- A-Z_)_LINKER := $(MACHINE)-linux-gnu-gcc
endif
# The seeds of random cases and of the fuzz targets' mutations, fixed so that failures are reproducible.
export PROPTEST_RNG_SEED ?= 1
export FUZZ_SEED ?= 1
DAEMONS  := install-cni sidecar-injector istio-cnictl
DAEMON_PACKAGES := --package istio-cni --package webhook --package cnictl
# Kernels of Debian releases, one directory for each version.
export KERNELS := $(TOOLS)/kernels
# The file with a line for each test suite: its name, the minimum number of its tests, and further arguments.
COUNTS   := tests/counts
# The packages whose unit tests also run with the plugin's features: the code that the plugin links.
PLUGIN_CRATES   := contract gocompat cni libcni ruleset redirect netlink netfilter podnet podfacts lookup plugin iptables
PLUGIN_PACKAGES := $(PLUGIN_CRATES:%=--package %)
SUITES   := $(shell cut -d" " -f1 $(COUNTS))
# The compiler of the fuzz targets, which need unstable features. The programs' compiler is in rust-toolchain.toml.
export NIGHTLY := nightly-2026-05-20

# Prints a line with the duration of each phase; on a terminal cargo also shows its progress.
PHASE    := @tests/support/make/phase
# The same for a command that mostly has nothing to do: it has a line only if it fails.
SILENT   := @tests/support/make/phase --silent
QUIET    := $(shell [ -t 2 ] || echo --quiet)

.PHONY: help require-demo require-test require-kernels demo test full test-new-machine suites explore kernels arm arm-tests sbom soak bench fuzz build image programs pod-programs reference man lint fmt clippy deny doc machete charts image-reproducible setup packages toolchain compiled target nightly browser tools manifests types clean
help:
	@echo 'make demo    a real pod through a real runtime, its traffic redirected'
	@echo 'make test    the tests of a change (REQUIRE_TIERS=corpus,go,helm,promtool,browser,netns,cri,cluster fails where a tier cannot run)'
	@echo 'make full    every test and lint, on all kernels, and fuzzing'
	@echo 'make test-new-machine  demo and test without packages, caches and tools'
	@echo 'make explore random cases of another seed, which is printed'
	@echo 'make kernels the netns tier on the kernels of Debian 11, 12 and 13, and without parts of one'
	@echo 'make soak    memory, descriptors, threads and files of the daemons under load for SOAK_SECONDS (3600)'
	@echo 'make arm     unit and golden tests of the plugin on arm64, under qemu'
	@echo 'make bench   measurements of plugin, daemons and injection, compared with floors and targets'
	@echo 'make fuzz    each fuzz target for FUZZ_SECONDS (30), with the mutations of FUZZ_SEED (0 is random)'
	@echo 'make image   the image as an OCI archive (ARCH=arm64 for the other architecture)'
	@echo 'make reference  the tables of docs/reference, from the definitions in the code'
	@echo 'make sbom    the crates of each program, as CycloneDX documents in target/sbom'
	@echo 'make man     man pages and completions of all programs, in target/man'
	@echo 'make image-reproducible  builds both images twice and compares their digests: an hour'
	@echo 'make lint    format, clippy, documentation, licences and bans, unused dependencies, charts'

require-demo require-test require-kernels: require-%:
	$(SILENT) 'prerequisites of $*' tests/support/make/require $*

# The demo is built with the examples for the reason stated at `programs`.
demo: require-demo build pod-programs
	$(PHASE) 'build the demo' cargo build $(QUIET) --workspace --examples --bin demo
	$(PHASE) 'demo' tests/support/make/twice demo target/debug/demo

# A gate goes on after a failure and ends with a table of its phases.
GATE := @tests/support/make/gate
test: require-test
	$(GATE) suites

# Everything, with the trials of the cluster that `make test` leaves out.
full: export FULL := 1
full: require-test
	$(GATE) lint suites demo kernels fuzz compatibility

# Prints README's tables of what was tried with which runtimes and neighbours.
.PHONY: compatibility
compatibility:
	@tests/support/make/compatibility $(GATE_DIR)

# Both commands on a machine without packages, caches and tools, in a checkout that other users may not enter.
test-new-machine: export REQUIRE_TIERS := corpus,go,helm,promtool,browser,netns,cri,cluster
test-new-machine:
	@tests/support/make/new-machine $(PACKAGES) chromium chromium-driver

suites: build programs browser tools
	$(PHASE) 'build the tests' cargo test $(QUIET) --workspace --no-run --lib --examples $(SUITES:%=--test %)
	@tests/support/make/compiled keep $(COMPILED) || echo '! compiled dependencies are not kept for other checkouts' >&2
	@tests/support/make/suites $(COUNTS) $(PLUGIN_CRATES)

# KERNELS_ARGS="'6.1 without IPv6'" selects one variant.
kernels: require-kernels build programs
	$(PHASE) 'packages of the guests' tests/support/make/packages $(PACKAGES_LOG) qemu-system-x86 cpio kmod
	$(PHASE) 'build the tests' cargo test $(QUIET) --no-run --test netns
	$(PHASE) 'build the kernel tool' cargo build $(QUIET) --workspace --examples --bin kernels
	$(PHASE) 'kernels' target/debug/kernels $(KERNELS_ARGS)

# Runs the plugin's unit tests and the golden suite as arm64 programs, under qemu.
arm:
	@$(MAKE) --no-print-directory ARCH=arm64 arm-tests
arm-tests: export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_MUSL_RUNNER := qemu-aarch64
arm-tests: setup
	@tests/support/make/packages $(PACKAGES_LOG) qemu-user
	$(PHASE) 'unit tests of the plugin on arm64' cargo test --quiet --target $(MUSL) --lib $(PLUGIN_PACKAGES)
	$(PHASE) 'golden tests on arm64' cargo test --quiet --target $(MUSL) --package redirect --test golden

# Runs random cases with a new seed, which is printed; EXPLORE_SEED=7 repeats a run. A failing case is written to
# proptest-regressions and is the first case of every later run: commit it with the fix.
ifndef EXPLORE_SEED
EXPLORE_SEED := $(shell od -An -N4 -tu4 /dev/urandom | tr -d ' ')
endif
EXPLORE_SUITES := template inject glob netns
explore: export PROPTEST_RNG_SEED := $(EXPLORE_SEED)
explore: setup
	@echo "· random cases of seed $(EXPLORE_SEED)"
	$(PHASE) 'build the tests' cargo test $(QUIET) --workspace --no-run --lib $(EXPLORE_SUITES:%=--test %)
	$(PHASE) 'unit tests' cargo test --quiet --workspace --lib
	$(PHASE) 'tests: template, inject, glob' cargo test --quiet --workspace --test template --test inject --test glob
	$(PHASE) 'tests: netns, random rules' cargo test --quiet --test netns random

# Runs the shipped programs under load for SOAK_SECONDS; fails if memory, descriptors, threads, watches, files or logs grow.
SOAK_SECONDS ?= 3600
soak: export SOAK_SECONDS := $(SOAK_SECONDS)
soak: build programs
	@cargo bench --quiet --bench soak

# target/bench keeps each part's output and the load of the machine. If a part cannot run, the other parts run nevertheless,
# and `make` fails and names the part.
INJECTION_BENCHES := inject inject_allocations inject_hostile inject_healthz
bench: build programs tools
	cargo build --quiet --profile plugin --target $(MUSL) $(STATIC_TEST_PROGRAMS) --bin bench_floor --bin bench_peak
	@printf '%s\n' 'add cargo bench --quiet --bench add -- $(BENCH_ARGS)' 'node cargo bench --quiet --bench node' \
	  $(foreach bench,$(INJECTION_BENCHES),'$(bench) cargo bench --quiet --package webhook --bench $(bench)') \
	  'repair cargo test --quiet --test cluster repair_redirects_in_place' | tests/support/make/bench target/bench

# Programs for nodes are static, because the host may lack libraries.
build: setup
	$(PHASE) 'build the plugin' cargo build $(QUIET) --profile plugin --target $(MUSL) --package plugin --package iptables
	$(PHASE) 'build the daemons' cargo build $(QUIET) --release --target $(MUSL) $(DAEMON_PACKAGES) $(DAEMONS:%=--bin %)

IMAGE      ?= localhost/install-cni:0.1.0
IMAGE_ARCH := $(patsubst x86_64,amd64,$(patsubst aarch64,arm64,$(MACHINE)))
IMAGE_TREE := target/image/$(IMAGE_ARCH)
image: build
	install -D -t $(IMAGE_TREE)/usr/local/bin $(addprefix $(STATIC)/release/,install-cni sidecar-injector) $(STATIC)/plugin/istio-iptables
	install -D -t $(IMAGE_TREE)/opt/cni/bin $(STATIC)/plugin/istio-cni
	cargo build --quiet --workspace --bin image
	target/debug/image target/image/install-cni-$(IMAGE_ARCH).tar $(IMAGE) $(IMAGE_TREE)

# Writes a CycloneDX document of each program's crates.
sbom: toolchain
	cargo run --quiet --package xtask --bin sbom $(MUSL) target/sbom

# Builds the image of each architecture twice from scratch in the same directory and compares the digests.
image-reproducible:
	@for arch in amd64 arm64; do \
	  for build in 1 2; do \
	    rm -rf target/*-unknown-linux-musl/release target/*-unknown-linux-musl/plugin && $(MAKE) --no-print-directory image ARCH=$$arch && \
	    sha256sum < target/image/install-cni-$$arch.tar > target/image/$$arch.$$build || exit 1; done; \
	  cmp target/image/$$arch.1 target/image/$$arch.2 || { echo "✗ two builds for $$arch differ" >&2; exit 1; }; \
	  echo "✓ $$arch: $$(cat target/image/$$arch.1)"; done

# The static test programs are a separate package with few dependencies, so that they are small.
STATIC_TEST_PROGRAMS := --package istio-cni-test-programs
# Programs that tests run in namespaces and in pods, whose images contain static programs only. The examples are built, too:
# they use dev-dependencies, so the library is built with the features of tests and not a second time.
programs: pod-programs
	$(PHASE) 'build programs for tests' cargo build $(QUIET) --workspace --examples \
	  --bin respond --bin connect --bin installer --bin repair --bin manuals

pod-programs: setup
	$(PHASE) 'build programs for pods' cargo build $(QUIET) --target $(MUSL) $(STATIC_TEST_PROGRAMS) \
	  --bin pod_app --bin pod_proxy --bin istio_installer --bin respond --bin connect

# Writes the tables of flags, variables, values, metrics, annotations and errors. A unit test fails if they are not current.
reference:
	cargo run --quiet --package xtask --bin reference

man:
	cargo run --quiet --package xtask --bin manuals target/man

lint: fmt clippy deny machete doc charts

fmt:
	$(PHASE) 'format' cargo fmt --all --check
	$(PHASE) 'format of the fuzz targets' cargo fmt --all --check --manifest-path fuzz/Cargo.toml

clippy:
	$(PHASE) 'clippy' cargo clippy --quiet --workspace --all-targets -- -D warnings
	$(PHASE) 'clippy of the plugin' cargo clippy --quiet --all-targets $(PLUGIN_PACKAGES) -- -D warnings

# Checks links and code blocks of the documentation; make test runs its examples.
doc: export RUSTDOCFLAGS := -D warnings
doc:
	$(PHASE) 'documentation' cargo doc --quiet --workspace --no-deps

# An advisory is published at any time, without a change here: it is a warning.
deny: $(CARGO_DENY)
	$(PHASE) 'licences, bans, sources' $(CARGO_DENY) --log-level error check licenses bans sources
	@if $(CARGO_DENY) --log-level off fetch db >/dev/null 2>&1; \
	  then $(CARGO_DENY) --log-level error check --disable-fetch advisories || echo '! advisories concern dependencies: see above' >&2; \
	  else echo '· advisories are not checked: their database cannot be fetched' >&2; fi

# Fails if no source uses a dependency.
machete: $(CARGO_MACHETE)
	$(PHASE) 'unused dependencies' $(CARGO_MACHETE)

charts: $(HELM)
	@if [ -x $(HELM) ]; then tests/support/make/phase 'charts' $(HELM) lint --quiet --strict install/helm/*; \
	  else echo '· charts are not linted: there is no helm' >&2; fi

FUZZ_SECONDS ?= 30
FUZZ_TARGETS ?= $(basename $(notdir $(wildcard fuzz/fuzz_targets/*.rs)))
# Runs one target per processor at a time. FUZZ_TARGETS=yaml selects one.
fuzz: export PATH := $(dir $(CARGO_FUZZ)):$(PATH)
fuzz: setup nightly $(CARGO_FUZZ)
	$(PHASE) 'build the fuzz targets' cargo +$(NIGHTLY) fuzz build
	@printf '%s\n' $(FUZZ_TARGETS) | xargs -P "$$(nproc)" -I TARGET \
	  tests/support/make/phase 'fuzz: TARGET' tests/support/make/fuzz $(FUZZ_SECONDS) TARGET

nightly:
	$(SILENT) 'nightly toolchain' tests/support/make/rust nightly $(NIGHTLY)

setup: packages toolchain target compiled

packages:
	$(PHASE) 'packages' tests/support/make/packages $(PACKAGES_LOG) $(PACKAGES)

toolchain:
	$(SILENT) 'toolchain' tests/support/make/rust toolchain

# The dependencies that another checkout has compiled.
compiled:
	$(SILENT) 'compiled dependencies' tests/support/make/compiled restore $(COMPILED)

target: toolchain
	$(SILENT) 'target $(MUSL)' tests/support/make/rust target $(MUSL)

browser: $(AXE)
	$(PHASE) 'packages of the browser' tests/support/make/packages $(PACKAGES_LOG) chromium chromium-driver

tools: $(CNITOOL) $(HELM) $(PROMTOOL) $(KUBE) $(CONTAINERD2)/bin/containerd $(CRIO)/crio $(MULTUS)/multus $(GVISOR)/runsc

TOOL := tests/support/make/tool
$(AXE):
	$(PHASE) 'fetch axe-core' $(TOOL) axe $@ $(AXE_PACKAGE) $(AXE_SHA512)
$(CNITOOL):
	$(PHASE) 'build cnitool' $(TOOL) cnitool $@ $(CNITOOL_MODULE)
$(HELM):
	$(PHASE) 'build helm' $(TOOL) helm $@ $(HELM_MODULE)
$(PROMTOOL):
	$(PHASE) 'build promtool' $(TOOL) promtool $@ $(PROMTOOL_MODULE)
$(KUBE):
	$(PHASE) 'build Kubernetes' $(TOOL) kube $@ $(KUBE_DIR)
$(CONTAINERD2)/bin/containerd:
	$(PHASE) 'build containerd 2' $(TOOL) containerd2 $@ $(CONTAINERD2_MODULES)
$(CRIO)/crio:
	$(PHASE) 'build CRI-O' $(TOOL) crio $@ $(CRIO_MODULE)
$(MULTUS)/multus:
	$(PHASE) 'build Multus' $(TOOL) multus $@ $(MULTUS_MODULE)
$(GVISOR)/runsc:
	$(PHASE) 'build gVisor' $(TOOL) gvisor $@ $(GVISOR_MODULE)
$(TOOLS)/cargo-%:
	$(PHASE) 'build $(@F)' $(TOOL) $(@F) $@ $(patsubst $(TOOLS)/%/bin/$(@F),%,$@)

# The plain manifests are the charts with default values. A helm from `go install` assumes a very old Kubernetes version.
manifests: $(HELM)
	for chart in istio-cni sidecar-injector; do \
	  $(HELM) template $$chart install/helm/$$chart --namespace kube-system --kube-version 1.33.0 > manifests/$$chart.yaml || exit 1; done

# Writes the table of Kubernetes types for decoding documents. `go get` in that directory selects another version of Kubernetes.
types:
	cd tests/support/kubetypes && go run . table > $(CURDIR)/crates/inject/src/typed/table.txt

clean:
	cargo clean
