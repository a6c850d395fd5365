# Set-up is part of every target: Rust with cargo, Python 3, make and a C and C++ compiler must be there.

# Seconds for each fuzz target of `make fuzz`.
TIME ?= 600
# Seconds for each fuzz target of `make test`.
SMOKE ?= 15

# Video codecs come with the system's libavcodec, where there is one.
VIDEO = $(shell pkg-config --exists libavcodec libavutil 2>/dev/null && echo --features tenfold-lab/video)

# Tests run the CUDA kernels on the CPU too.
TESTED = $(VIDEO) --features tenfold-lab/emulator,tenfold-nvcodec/emulator

# What is tested without the system's libavcodec.
WITH_AV1 = --features tenfold-video/av1,tenfold-nvcodec/emulator,tenfold-nvcodec-standin/av1

LAB = $(or $(CARGO_TARGET_DIR),target)/release/tenfold-lab

.PHONY: help demo man test setup lint unit python test-integrations test-serving test-cluster bench race eval docs fuzz ptx

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-17s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## Compress real tensors, look inside, measure the error, unpack
	cargo build --release --quiet --package tenfold-cli
	@scripts/demo.sh

test: setup ## Installs what tests need; lints, all tests, and a short run of each fuzz target
	@$(MAKE) --no-print-directory lint docs unit python
	scripts/ptx.py --check
	fuzz/run $(SMOKE)

setup: ## Installs libavcodec's headers and a browser, if they are missing
	@scripts/setup.sh

lint: ## Formatting and clippy, where the toolchain has them
	@if cargo fmt --version >/dev/null 2>&1; then \
		echo "cargo fmt --all --check"; cargo fmt --all --check; \
	else echo "lint: rustfmt is not installed, skipped"; fi
	@if cargo clippy --version >/dev/null 2>&1; then \
		echo "cargo clippy --workspace --all-targets $(TESTED) -- -D warnings"; \
		cargo clippy --workspace --all-targets $(TESTED) --quiet -- -D warnings; \
	else echo "lint: clippy is not installed, skipped"; fi

unit: ## All tests of the workspace
	@[ -n "$(VIDEO)" ] || echo "unit: no libavcodec: the feature video is not tested"
	@if cargo nextest --version >/dev/null 2>&1; then \
		cargo nextest run --workspace $(TESTED) && cargo test --workspace $(TESTED) --doc; \
	else cargo test --workspace $(TESTED); fi
	cargo test --workspace $(TESTED) --test parity -- cuda::
	cargo test --quiet --workspace --test without
	cargo test --quiet --package tenfold-video --package tenfold-nvcodec $(WITH_AV1)

python: ## Builds the Python wheel, installs it into an environment of its own, runs its tests
	@scripts/python-test.sh

test-integrations: ## Tests the wheel with torch and transformers, which it installs once into an environment of their own
	@scripts/integrations-test.sh

test-serving: ## Tests the plug-ins for LMCache, SGLang and vLLM with these engines, on the CPU
	@scripts/serving-test.sh

test-cluster: ## Tests tenfold.ray with Ray, on local clusters of two nodes
	@scripts/cluster-test.sh

bench: ## Measure, print each figure beside its bar, keep the reports in results/
	cargo build --release --quiet --package tenfold-lab $(VIDEO)
	$(LAB) bench gap --json results/gap.json
	$(LAB) bench files testdata/*.safetensors --json results/files.json
	$(LAB) bench rate --quick --json results/rate.json
	$(LAB) bench lossless --json results/lossless.json
	$(LAB) bench speed --json results/speed.json

race: ## Every coder on the tensors of the repository; tables, plots and a page in results/race/
	cargo build --release --quiet --package tenfold-lab $(VIDEO)
	$(LAB) race testdata/*.safetensors --out results/race
	scripts/picture.py

eval: ## What compression does to models: perplexity, embeddings, features; tables and plots in results/eval/
	@scripts/eval.sh

docs: ## Checks links, builds the documentation as a book (installs mdBook under the target folder)
	@scripts/docs.py

man: ## Writes manual pages into target/man
	cargo run --quiet --package tenfold-cli --example man -- $(or $(CARGO_TARGET_DIR),target)/man

fuzz: ## Each fuzz target for TIME seconds (default 600)
	fuzz/run $(TIME)

ptx: ## Compiles the CUDA kernels again (needs no CUDA, no GPU)
	cargo run --quiet --package tenfold-cuda --example constants
	scripts/ptx.py
