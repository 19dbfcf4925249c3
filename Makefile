# Doorstep's tasks. `make` lists them; each sets up what it needs by itself.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules
.DELETE_ON_ERROR:

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -s -w -X github.com/doorstep-dev/doorstep/internal/cli.version=$(VERSION)

# The data path needs no C: one binary, built the same with and without a C compiler. Only the race detector does.
export CGO_ENABLED ?= 0

# Tools are built from the versions pinned in hack/tools, once for each state of it.
TOOLS_STAMP := $(shell cat hack/tools/go.sum hack/tools/golangci-lint/main.go | sha256sum | cut -c1-12)
TOOLS := $(CURDIR)/bin/tools-$(TOOLS_STAMP)
CONTROLLER_GEN := $(TOOLS)/controller-gen
CRD_REF_DOCS := $(TOOLS)/crd-ref-docs
GOLANGCI_LINT := $(TOOLS)/golangci-lint

# What `make generate` writes; `make verify` fails when it is not up to date.
GENERATED := api/v1alpha1 config/crd docs/api

# go test flags for one run, such as TESTFLAGS='-run TestX -v'.
TESTFLAGS ?=
FUZZTIME ?= 3s
BENCHFLAGS ?=

##@ Use

.PHONY: help
help: ## List the targets.
	@awk 'BEGIN {FS = ":.*## "} \
	  /^##@ / {printf "\n%s\n", substr($$0, 5)} \
	  /^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo

.PHONY: demo
demo: build ## Run the whole path on this machine, with a receiver that fails at times. KEEP=1 leaves it running.
	KEEP=$(KEEP) hack/demo.sh

.PHONY: build
build: ## Build bin/doorstep.
	@echo 'building bin/doorstep; the first build compiles all dependencies and takes a few minutes'
	go build -trimpath -ldflags '$(LDFLAGS)' -o bin/doorstep ./cmd/doorstep

##@ Test

.PHONY: test
test: interop-deps ## Run all tests: unit, conformance, property, interop, then each fuzz test for FUZZTIME.
	assets=$$(hack/envtest.sh) && export KUBEBUILDER_ASSETS=$$assets && \
	  go test -timeout 30m $(TESTFLAGS) $$(go list ./... | grep -v /test/) && \
	  go test -timeout 30m -p 1 $(TESTFLAGS) ./test/...
	hack/fuzz.sh $(FUZZTIME)

.PHONY: race
race: ## Run the tests of internal/ under the race detector, which needs a C compiler.
	hack/need.sh cc gcc libc6-dev
	assets=$$(hack/envtest.sh) && KUBEBUILDER_ASSETS=$$assets CGO_ENABLED=1 go test -race -timeout 30m $(TESTFLAGS) ./internal/...

.PHONY: crash
crash: ## Kill the process under load, 50 times unless DOORSTEP_CRASH_KILLS says otherwise, and count what is lost.
	go test -count=1 -timeout 60m -v $(TESTFLAGS) ./test/crash/...

.PHONY: fuzz-short
fuzz-short: ## Run every fuzz test for FUZZTIME (3s).
	hack/fuzz.sh $(FUZZTIME)

.PHONY: bench
bench: ## Measure speed, memory and isolation; the last line is one JSON object.
	go run ./test/bench $(BENCHFLAGS)

.PHONY: bench-manager
bench-manager: ## Measure the control plane with 10,000 endpoints; the last line is one JSON object.
	assets=$$(hack/envtest.sh) && KUBEBUILDER_ASSETS=$$assets go run ./test/bench/manager $(BENCHFLAGS)

.PHONY: interop-deps
interop-deps: ## Install what the tests against the official webhook libraries, and of the sample receivers, need.
	hack/interop-deps.sh

##@ Change

.PHONY: generate
generate: $(CONTROLLER_GEN) $(CRD_REF_DOCS) ## Generate deep copies, apply configurations, CRDs and docs/api from api/.
	$(CONTROLLER_GEN) object applyconfiguration paths=./api/v1alpha1
	$(CONTROLLER_GEN) crd paths=./api/v1alpha1 output:crd:dir=config/crd
	$(CRD_REF_DOCS) --source-path=api/v1alpha1 --config=hack/apidocs/config.yaml --templates-dir=hack/apidocs/templates \
	  --renderer=markdown --output-path=docs/api/v1alpha1.md --log-level=ERROR

.PHONY: fmt
fmt: $(GOLANGCI_LINT) ## Format all Go files.
	$(GOLANGCI_LINT) fmt

.PHONY: lint
lint: $(GOLANGCI_LINT) ## Run the linters.
	$(GOLANGCI_LINT) run --allow-parallel-runners

.PHONY: verify
verify: $(GOLANGCI_LINT) ## Check generated files, formatting, modules, vet and lint.
	hack/verify-generated.sh $(GENERATED)
	$(GOLANGCI_LINT) fmt --diff
	go mod tidy -diff
	cd hack/tools && go mod tidy -diff
	cd hack/k8s && go mod tidy -diff
	go vet ./...
	$(GOLANGCI_LINT) run --allow-parallel-runners

.PHONY: clean
clean: ## Remove what was built.
	rm -rf bin

$(CONTROLLER_GEN): hack/tools/go.mod hack/tools/go.sum
	cd hack/tools && go build -trimpath -o $@ sigs.k8s.io/controller-tools/cmd/controller-gen

$(CRD_REF_DOCS): hack/tools/go.mod hack/tools/go.sum
	cd hack/tools && go build -trimpath -o $@ github.com/elastic/crd-ref-docs

$(GOLANGCI_LINT): hack/tools/go.mod hack/tools/go.sum hack/tools/golangci-lint/main.go
	cd hack/tools && go build -trimpath -o $@ ./golangci-lint
