# The toolchain and the SIMD experiment are part of the build: without
# GOEXPERIMENT=simd the CPU device is an order of magnitude slower. CGO stays off:
# neither a C compiler nor a GPU is needed. Everything is compiled with the same flags,
# so that the build, the tests and the plugins that cage itself builds share one cache.
export GOTOOLCHAIN := go1.27.2
export GOEXPERIMENT := simd
export CGO_ENABLED ?= 0
export GOFLAGS := $(strip $(GOFLAGS) -trimpath)

GO ?= go
MODULES := . tools examples
EVERYTHING := ./... ./tools/... ./examples/...
PLUGINS := $(notdir $(wildcard plugins/*))
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
GREMLINS := github.com/go-gremlins/gremlins/cmd/gremlins@v0.6.0
GORELEASER := github.com/goreleaser/goreleaser/v2@v2.13.0

.DEFAULT_GOAL := help

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# The product is built from its own go.mod, as for everybody else; all else is done in the
# workspace of the three modules.
build plugins bin/test/cage cuda reproducible: export GOWORK := off

.PHONY: build
build: ## Build bin/cage and bin/plugins/*
	@mkdir -p bin/plugins
	$(GO) build -o bin/cage ./cmd/cage
	@$(MAKE) --no-print-directory plugins

# A run records the hash of its plugins: it must not change with every commit. Files that are the
# same stay, so that the go command need not repeat the tests that use them; those in bin/built
# stay, so that it need not link them again.
.PHONY: plugins
plugins:
	@mkdir -p bin/plugins bin/built
	$(GO) build -buildvcs=false -o bin/built/ $(addprefix ./plugins/,$(PLUGINS))
	@cd bin && for p in $(PLUGINS); do \
		cmp -s built/$$p plugins/$$p || { cp built/$$p built/$$p.new && mv -f built/$$p.new plugins/$$p; } || exit 1; done

# The command that tests start, as the plugins: the same file unless its code has changed.
bin/test/cage: FORCE
	@mkdir -p bin/test bin/built
	$(GO) build -buildvcs=false -o bin/built/cage ./cmd/cage
	@cmp -s bin/built/cage $@ || { cp bin/built/cage $@.new && mv -f $@.new $@; }

.PHONY: FORCE
FORCE:

.PHONY: cuda
cuda: ## Build bin/cage-cuda, for NVIDIA's GPUs and Linux with glibc 2.28 or newer (Zig's C compiler from PyPI, 101 MB)
	scripts/old-libc.sh $(GO) build -tags cuda,netgo,osusergo -o bin/cage-cuda ./cmd/cage
	scripts/old-libc.sh --check bin/cage-cuda

# The go command begins with what is named first: packages whose tests take longest.
PACKAGES ?= ./cmd/cage ./host/train ./host/study ./host/train/step ./plugins/mxfp4 ./plugins/nvfp4 ./examples/plugins/vq ./sdk/sdktest $(EVERYTHING)

# Some tests wait for processes and clocks: with twice as many packages at a time as there are
# processors, others run meanwhile.
AT_A_TIME := -p $(shell echo $$((2 * $$(getconf _NPROCESSORS_ONLN))))

# The go command repeats only tests whose code, environment or files in their module have changed.
# Those of tools and examples read files outside of their modules, and always run.
OUTSIDE = $(filter ./tools% ./examples%,$(PACKAGES))
define tests
	$(if $(filter-out $(OUTSIDE),$(PACKAGES)),$(GO_TEST) $(1) $(filter-out $(OUTSIDE),$(PACKAGES)))
	$(if $(OUTSIDE),$(GO_TEST) $(1) -count=1 $(OUTSIDE))
endef
# A package of tests has 45 minutes: 18 were too few for cmd/cage and host/train where other work
# shared two cores. CI, which has 90 for all, can still tell which test never ends.
GO_TEST = scripts/timeouts.sh scripts/in-memory.sh $(GO) test -vet=off -timeout 45m $(AT_A_TIME) $(FLAGS)

# Tests find the plugins built, so that not each of them asks the go command for each plugin.
# They build much and keep little: with a rarer garbage collection they need a seventh less
# processor time. make check runs go vet.
test quick exhaustive: export CAGE_TEST_PLUGINS := $(CURDIR)/bin/plugins
test exhaustive: export CAGE_TEST_COMMAND := $(CURDIR)/bin/test/cage
test quick exhaustive vet staticcheck deadcode: export GOGC := 400

.PHONY: test
test: plugins bin/test/cage ## Run all tests whose code has changed (some: PACKAGES=./host/data/...)
	$(call tests)

.PHONY: quick
quick: PACKAGES = ./host/... ./cmd/... $(patsubst %,./%/...,$(filter-out internal/testing,$(wildcard internal/*))) ./sdk/... ./tools/repocheck
quick: plugins ## Run what tests the product, but for its plugins and tests that take long (some: PACKAGES=./host/data/...)
	$(call tests,-short)

.PHONY: exhaustive
exhaustive: plugins bin/test/cage ## Run all tests with everything that make test takes a sample of: pairs of plugins, failing operations, random programs
	CAGE_TESTS=all $(GO) test -timeout 2h $(PACKAGES)

.PHONY: avx2
avx2: ## Run the tests of what computes numbers once more, as processors without AVX-512, and without AVX, do
	@if grep -q avx512f /proc/cpuinfo; then set -x; \
		GODEBUG=cpu.avx512f=off $(GO) test -vet=off ./host/compute/cpu ./host/compute/engine ./host/compute/loops ./host/compute/lower ./host/compute/matmul ./host/model ./host/compute/stage/... ./internal/linalg; \
	else echo "SKIPPED without AVX-512: make test has run the same"; fi
	GODEBUG=cpu.avx=off,cpu.avx2=off $(GO) test -vet=off ./host/compute/engine ./host/compute/loops ./host/compute/lower

.PHONY: emulated
emulated: ## Run the tests of kernels on an emulated processor with AVX-512, BF16 and VNNI (Debian, root; half an hour)
	@set -e; for package in matmul loops cpu attention; do \
		$(GO) test -c -o bin/emulated/$$package.test ./host/compute/$$package; \
		echo "== $$package"; \
		scripts/emulate-avx512.sh bin/emulated/$$package.test -test.short -test.timeout 0; \
	done

.PHONY: race
race: ## Run all tests under the race detector, which needs a C compiler (some: PACKAGES=./host/data/...)
	CGO_ENABLED=1 $(GO) test -race -timeout 90m $(PACKAGES)

.PHONY: campaign
campaign: build ## Kill cage at every system call that changes a file, and see that nothing is lost (Linux; goes on where it was)
	$(GO) run ./tools/crashtest -rounds 2

.PHONY: campaign-short
campaign-short: build ## A sample of the crash campaign: 20 seconds of kills
	$(GO) run ./tools/crashtest -for 20s

.PHONY: faults
faults: ## Make every operation on kept files fail in turn, and lose power at every moment (half an hour)
	CAGE_TESTS=all $(GO) test -count=1 -timeout 2h -v -run 'TestFaults|TestPowerLoss' ./host/train ./host/study ./host/data

.PHONY: mutants
mutants: ## Change the code of a package in one place at a time and see whether a test fails (PACKAGES=./host/compute/lower)
	$(GO) run $(GREMLINS) unleash $(PACKAGES)

.PHONY: fuzz
fuzz: ## Fuzz every parser and format, FUZZTIME each (10m); some: TARGETS="./host/data FuzzGolden"
	scripts/fuzz.sh $(TARGETS)

.PHONY: protocol
protocol: ## Pack what an author of plugins in another language needs into bin/cage-protocol.tar.gz
	@mkdir -p bin
	tar -czf bin/cage-protocol.tar.gz sdk/internal/wire/cage/plugin/v1/*.proto sdk/protocol/README.md sdk/protocol/*.jsonl docs/reference/operations.md docs/reference/plugin-protocol.md

.PHONY: wheel
wheel: ## Make the wheels of cage-sdk and cage-torch in bin/wheels, for Linux and macOS on x86-64 and ARM64, with cage and its plugins
	@rm -rf bin/wheels
	$(GO) run ./tools/wheel bin/wheels

.PHONY: python
python: build ## Test the package for plugins in Python, plugins in Python, and modules for PyTorch (needs Python 3.10, and the network once)
	GO=$(GO) scripts/python.sh

.PHONY: demo
demo: build ## Train, evaluate, sample and plot a small 4-bit Llama (3 to 7 minutes on 2 cores)
	scripts/demo.sh qat

.PHONY: demo-compare
demo-compare: build ## The same model in full precision, with QuEST, and with QuEST + CAGE, side by side
	scripts/demo.sh compare

.PHONY: life
life: build ## Pretrain, fine-tune on conversations in MXFP4, chat, export for other programs (about 11 minutes on 2 cores)
	scripts/life.sh

.PHONY: paper-small
paper-small: build ## A part of the paper's experiments in their small variants, with their report (under an hour on 2 cores)
	scripts/paper.sh

.PHONY: results
results: build ## Run the studies whose results are not in docs/results or are stale there, and write the docs (many hours)
	scripts/results.sh
	scripts/docs.sh

.PHONY: docs
docs: build ## Write the results that are kept in docs/results into the docs
	scripts/docs.sh

.PHONY: docs-check
docs-check: build ## Fail when the docs say something else than docs/results
	scripts/docs.sh --check

.PHONY: site
site: ## Make a web site of the documents in bin/site/html, and follow their links (needs Python; 30 MB from PyPI)
	scripts/site.sh

.PHONY: pictures
pictures: build ## Make the pictures of README.md and docs/lab/gallery.md again (half an hour; needs Chromium)
	scripts/pictures.sh

.PHONY: check
check: vet conventions staticcheck deadcode generated tidy reproducible vulnerabilities ## What CI checks beside the tests

.PHONY: size
size: ## Count the lines of Go by layer, without tests and generated code
	@scripts/size.sh

.PHONY: vet
vet: ## gofmt and go vet
	@files=$$(git ls-files '*.go') && [ -n "$$files" ] || { echo "git lists no files of Go: make vet needs a clone"; exit 1; }; \
	unformatted=$$(gofmt -l $$files) && [ -z "$$unformatted" ] || { echo "gofmt needed: $$unformatted"; exit 1; }
	$(GO) vet $(EVERYTHING)

.PHONY: conventions
conventions: ## The repository's own rules: imports, lengths of lines, names (make test runs them, too)
	$(GO) test -count=1 ./tools/repocheck

.PHONY: staticcheck
staticcheck: ## staticcheck at a fixed version
	$(GO) run $(STATICCHECK) $(EVERYTHING)

.PHONY: deadcode
deadcode: ## Fail when there are functions that nothing calls
	GO=$(GO) scripts/deadcode.sh

.PHONY: generate
generate: ## Regenerate the wire format's code, tables in docs, and the licences of others' code
	scripts/generate.sh

.PHONY: generated
generated: ## Fail when generated files are not up to date
	scripts/generate.sh --check

.PHONY: tidy
tidy: ## Fail when go.mod or go.sum of a module is not tidy
	@for module in $(MODULES); do (cd $$module && GOWORK=off $(GO) mod tidy -diff) || exit 1; done

.PHONY: reproducible
reproducible: plugins ## Build twice, in different directories, and fail when the outcomes differ
	GO=$(GO) scripts/build-twice.sh

.PHONY: vulnerabilities
vulnerabilities: ## Look for known vulnerabilities in what is called of others' code
	GO=$(GO) scripts/vulnerabilities.sh

.PHONY: fresh-check
fresh-check: ## Try the README's two commands in a clone, with caches that start empty (half an hour)
	scripts/fresh-check.sh

.PHONY: snapshot
snapshot: ## Make the archives of a release in dist/, and publish nothing
	$(GO) run $(GORELEASER) release --snapshot --clean
	scripts/try-archive.sh dist

.PHONY: release
release: cuda wheel ## Make the archives and wheels at a tag and draft a release of them (needs GITHUB_TOKEN)
	rm -f bin/cage-cuda_linux_*.gz
	gzip -9 -n -c bin/cage-cuda >bin/cage-cuda_linux_$$($(GO) env GOARCH).gz
	$(GO) run $(GORELEASER) release --clean

.PHONY: interop
interop: ## Export small models and load them with transformers, compressed-tensors, gguf and llama.cpp (6 GB of Python packages)
	scripts/interop.sh

.PHONY: events
events: ## Have TensorBoard and Weights & Biases read event files, and compare what they find (200 MB of Python packages)
	scripts/events.sh

.PHONY: xla
xla: ## Run the steps, evaluations, replicas and faults of a GPU on XLA, without one (600 MB of Python packages, a C compiler)
	scripts/xla.sh

.PHONY: predict
predict: ## Compile the presets' steps for an H200 that is not there: memory, kernels, a bound of their time (4 GB of Python packages)
	scripts/predict.sh

.PHONY: bench
bench: ## Run the benchmarks of all packages once
	$(GO) test -run '^$$' -bench . -benchtime 1x $(PACKAGES)

.PHONY: clean
clean: ## Remove built files (not runs or data)
	rm -rf bin dist
