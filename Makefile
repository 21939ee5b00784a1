# What people run: `make demo` and `make test`. Each installs what is missing and is quick when all is there.

ARCH     := $(shell uname -m)
MUSL     := $(ARCH)-unknown-linux-musl
STATIC   := target/$(MUSL)
PACKAGES := iptables nftables containerd runc containernetworking-plugins iproute2 util-linux \
            procps musl-tools protobuf-compiler gcc g++
TOOLS    := $(HOME)/.cache/istio-cni-tools
export CNITOOL := $(TOOLS)/bin/cnitool
# Tests and demo run the very binary that is shipped.
export ISTIO_CNI := $(CURDIR)/$(STATIC)/plugin/istio-cni
# ring compiles C for the static target.
export CC_$(subst -,_,$(MUSL)) := musl-gcc
SUITES   := golden template inject cli oracle pod repair netns cri

.PHONY: help demo test bench fuzz build programs lint deny fmt setup packages target nightly cnitool clean
help:
	@echo 'make demo    a real pod through a real runtime, its traffic redirected'
	@echo 'make test    every test (REQUIRE_TIERS=netns,cri fails where a tier cannot run)'
	@echo 'make bench   the plugin against its floor and against the commands that Istio runs'
	@echo 'make fuzz    each fuzz target for FUZZ_SECONDS (20)'
	@echo 'make lint    format, clippy, licences and bans'

demo: build programs
	cargo run --quiet --example demo

test: build programs cnitool
	cargo test --quiet --lib --bins
	cargo test --quiet $(SUITES:%=--test %)

bench: build
	cargo build --quiet --profile plugin --target $(MUSL) --example bench_floor --example bench_peak
	cargo run --quiet --release --example bench -- $(BENCH_ARGS)

# What runs on a node is static: it must not ask for a library that the host lacks.
build: setup
	cargo build --quiet --profile plugin --target $(MUSL) --bins

# What tests run inside namespaces, and inside pods, whose images hold nothing but a static program.
programs: setup
	cargo build --quiet --example answer --example ask
	cargo build --quiet --target $(MUSL) --example pod_app --example pod_proxy

lint: fmt deny
	cargo clippy --quiet --all-targets -- -D warnings

fmt:
	cargo fmt --check

deny: $(HOME)/.cargo/bin/cargo-deny
	cargo deny --log-level error check licenses bans sources

$(HOME)/.cargo/bin/cargo-deny:
	cargo install --quiet --locked cargo-deny

FUZZ_SECONDS ?= 20
FUZZ_TARGETS  = $(basename $(notdir $(wildcard fuzz/fuzz_targets/*.rs)))
fuzz: setup nightly $(HOME)/.cargo/bin/cargo-fuzz
	for target in $(FUZZ_TARGETS); do \
	  cargo +nightly fuzz run $$target -- -max_total_time=$(FUZZ_SECONDS) -rss_limit_mb=2048 || exit 1; done

nightly:
	@rustup toolchain list | grep -q '^nightly' || rustup toolchain install nightly --profile minimal

$(HOME)/.cargo/bin/cargo-fuzz:
	cargo install --quiet --locked cargo-fuzz

setup: packages target

packages:
	@dpkg-query -W -f '$${Status}\n' $(PACKAGES) 2>/dev/null | grep -c 'ok installed' | grep -qx $(words $(PACKAGES)) \
	  || (apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $(PACKAGES))

target:
	@rustup target list --installed | grep -qx $(MUSL) || rustup target add $(MUSL)

cnitool: $(CNITOOL)
$(CNITOOL):
	@if command -v go >/dev/null; then GOBIN=$(TOOLS)/bin GOFLAGS=-mod=mod go install github.com/containernetworking/cni/cnitool@v1.3.0; \
	  else echo 'no go: the trials with cnitool are ignored'; fi

clean:
	cargo clean
