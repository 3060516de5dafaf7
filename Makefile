# You need Go, git and make. All other tools are pinned in deploy/tools and built once into
# .cache/tools.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
# A single go command already uses all cores.
.NOTPARALLEL:
# Recipes choose their own flags, and need the workspace.
unexport GOFLAGS GOWORK GO111MODULE
# Recipes print short summaries. `make -n TARGET` prints the commands.

include deploy/tools/tools.mk

REPOSITORY := github.com/kv8s/curl-me-that

# The checkout within single quotes.
HERE := $(subst ','\'',$(CURDIR))

# go.work lists the modules.
MODULES  := $(shell sed -n 's|^[[:space:]]*\./||p' go.work)
PACKAGES := $(MODULES:%=./%/...)
UNIT     := ./deploy/curlctl ./writer ./watcher $(filter-out ./deploy/e2e/...,$(PACKAGES))

COMMANDS := ./watcher/cmd/watcher ./watcher/cmd/keeper ./fetcher/cmd/fetcher ./writer/cmd/writer \
            ./deploy/local/cmd/curl-me-that ./deploy/local/cmd/control-plane \
            ./deploy/curlctl/cmd/curlctl ./deploy/e2e/cmd/origin

# For scripts: make -s print-COMMANDS.
print-%:
	@echo $($*)

# The longest suites start first. Suites that measure or need a running installation have their own targets.
LONGEST := $(addprefix ./deploy/e2e/,fault broker console permissions acceptance random watchers manifests) \
           ./deploy/curlctl ./fetcher/internal/throttle ./deploy/local/controlplane ./writer
SUITES   = $(LONGEST) $(UNIT) $(shell GOFLAGS= GOWORK= GO111MODULE= go list ./deploy/e2e/... | grep -v -E '/deploy/e2e/(bench|hostile|installed|compose|cluster)$$')

# The default version is "dev" for images and `git describe` for programs.
IMAGE_VERSION := $(or $(VERSION),dev)
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)

# Without debug information, compilation takes a fifth less time.
NO_DWARF := -gcflags=all=-dwarf=false

# The version is a linker flag, because Go would ask git, which fails in a checkout of another user.
LDFLAGS  = -s -w -X $(REPOSITORY)/proto/process.Version=$(VERSION)
# Less garbage collection saves a quarter of the CPU time of compiler and linker.
GO_BUILD = CGO_ENABLED=0 GOGC=$(or $(GOGC),400) deploy/tools/build -v -trimpath -buildvcs=false $(NO_DWARF) -ldflags '$(LDFLAGS)'

# Without debug information, a test links in two thirds of the time. Vet has its own target.
TEST_BUILD := -vet=off -ldflags='-s -w' $(NO_DWARF)

# The race detector needs cgo and therefore a C compiler with headers.
RACE = $(shell [ "$$(go env CGO_ENABLED)" = 1 ] && \
         echo | $$(go env CC) -E -include stdlib.h -x c - >/dev/null 2>&1 && echo -race)
GO_TEST = go test $(or $(RACE),$(info no working C compiler found: testing without the race detector)) $(TEST_BUILD) $(TESTFLAGS)

# Go caches packages by build flags, so everything except tests with the race detector uses the
# same ones.
SHARED_FLAGS := CGO_ENABLED=0 GOFLAGS='-trimpath $(NO_DWARF)'

EXEC = $(GO_BUILD) -o bin/ ./deploy/local/cmd/control-plane

# Runs a command with an API server: that of KUBECONFIG=… of make, or a temporary one, of version KUBERNETES if that is
# set. A KUBECONFIG in the environment is often that of a real cluster, which demo and tests must not change.
PROGRAMS     := $(if $(filter /%,$(ASSETS)),,$(HERE)/)$(ASSETS)
WITH_ASSETS  := env $(if $(filter environment,$(origin KUBECONFIG)),-u KUBECONFIG )KUBEBUILDER_ASSETS='$(if $(KUBERNETES),$(HERE)/.cache/kubernetes/$(KUBERNETES),$(PROGRAMS))'
# `bin/control-plane exec` finds the programs beside itself.
LINK_ASSETS   = for p in etcd kube-apiserver kubectl; do [ ! -x '$(PROGRAMS)'/$$p ] || ln -sf '$(PROGRAMS)'/$$p bin/; done
WITH_CLUSTER := $(WITH_ASSETS) bin/control-plane exec --

TESTFLAGS ?=
FUZZTIME  ?= 10s

##@ Use

.PHONY: help
help: ## Show this list
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} \
	  /^[a-z-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build watcher, fetcher, writer, keeper, curl-me-that and curlctl into bin/
	@echo 'go build -o bin/ $(notdir $(COMMANDS)), version $(VERSION)'
	@$(GO_BUILD) -o bin/ $(COMMANDS)
	@$(LINK_ASSETS)

PLUGIN_DIR ?= $(HOME)/.local/bin

.PHONY: plugin
plugin: build ## Install curlctl as the kubectl plugin curl-me-that into PLUGIN_DIR (~/.local/bin)
	mkdir -p $(PLUGIN_DIR)
	install -m 755 bin/curlctl $(PLUGIN_DIR)/kubectl-curl_me_that
	install -m 755 deploy/curlctl/kubectl/kubectl_complete-curl_me_that $(PLUGIN_DIR)/

.PHONY: demo
demo: $(filter-out $(if $(shell command -v kubectl),%/kubectl),$(CONTROL_PLANE)) ## See it work: watch keys fill, fail and recover (Ctrl-C to stop)
	@echo 'Building the demo: this takes minutes the first time, then seconds.'
	@$(GO_BUILD) -o bin/ ./deploy/local/cmd/curl-me-that
	@$(LINK_ASSETS)
	@$(WITH_ASSETS) bin/curl-me-that demo $(if $(findstring command,$(origin KUBECONFIG)),--kubeconfig '$(KUBECONFIG)') $(DEMO_ARGS)

# Images are REGISTRY/NAME:VERSION.
REGISTRY ?= ghcr.io/kv8s/curl-me-that
##@ Install (deploy/docs/install.md)

IN_CLUSTER := REGISTRY=$(REGISTRY) VERSION=$(IMAGE_VERSION) HELM=$(HELM) deploy/tools/install

.PHONY: images
images: ## Build all images as REGISTRY/NAME:VERSION (ghcr.io/kv8s/curl-me-that, dev)
	REGISTRY=$(REGISTRY) VERSION=$(IMAGE_VERSION) docker compose --profile '*' build

.PHONY: push
push: ## Push the images of the chart to REGISTRY
	@$(IN_CLUSTER) push

.PHONY: deploy
deploy: $(HELM) ## Build missing images and install the chart in the current cluster: REGISTRY=… or KIND=name, VALUES=file
	@$(IN_CLUSTER) deploy

.PHONY: undeploy
undeploy: $(HELM) ## Remove the installation of make deploy; ConfigMaps keep their data
	@$(IN_CLUSTER) undeploy

.PHONY: manifests
manifests: ## Write install.yaml, install-small.yaml, watchers.yaml and sidecars.yaml with the images of REGISTRY and VERSION to dist/
	@$(IN_CLUSTER) manifests

##@ Test

# Number of parallel suites: more than cores, because most suites wait.
PARALLEL ?= 6

SPEC_TIMES := $(HERE)/.cache/spec-times

# Prints progress, failures, the commands that repeat them, and totals.
REPORT = deploy/tools/test-report -v packages=$$(go list $(SUITES) | sort -u | wc -l)

# The suites run without the race detector. It would slow down brokers and measurements, but not see the
# programs, which run as processes. The simulations of package throttle and the long histories of curlctl
# are too large for it.
GO_TEST_PROGRAMS = HELM='$(HERE)/$(HELM)' CURLMETHAT_BIN='$(HERE)/bin' SPEC_TIMES='$(SPEC_TIMES)' $(SHARED_FLAGS) $(WITH_CLUSTER) \
                   go test $(TEST_BUILD) $(TESTFLAGS) -count=1 -timeout=30m

# Stores of NATS are in memory if 2 GB of it are free, which saves up to a quarter of a suite's processor time.
# Measurements use the disk.
IN_MEMORY = $(shell df -Pk /dev/shm 2>/dev/null | awk 'NR == 2 && $$4 > 2000000 { print "NATSTEST_DIR=/dev/shm" }')

.PHONY: test
test: test-chart $(CONTROL_PLANE) build $(HELM) ## Run all tests that need no containers, 4 to 7 minutes on two cores (in the cluster of KUBECONFIG=… if that is given)
	@$(if $(KUBERNETES),deploy/tools/kubernetes $(KUBERNETES) '$(HERE)/.cache/kubernetes/$(KUBERNETES)' '$(PROGRAMS)')
	@echo 'Compiling the suites, which takes minutes the first time…'
	@: >'$(SPEC_TIMES)' # suites append to it, if they have any
	@$(IN_MEMORY) $(GO_TEST_PROGRAMS) -json -p $(PARALLEL) $(SUITES) | $(REPORT)
	@echo 'The ten slowest specs, in seconds:'; sort -rn '$(SPEC_TIMES)' | head -n 10

# The control plane always has the same address, so that Go can cache results.
.PHONY: test-fast
test-fast: $(CONTROL_PLANE) ## Test the changed modules, without the race detector
	@$(EXEC)
	@echo 'go test of all changed modules'
	@$(WITH_ASSETS) bin/control-plane exec --data-dir '$(HERE)/.cache/control-plane' -- env $(SHARED_FLAGS) go test $(TEST_BUILD) $(UNIT)

# The race detector keeps the cores busy, so fewer suites run at a time than without it.
.PHONY: test-race
test-race: $(CONTROL_PLANE) ## Test the modules with the race detector, 8 minutes
	@$(EXEC)
	@echo 'go test -race of all modules: for some minutes, go prints nothing until the longest one is done'
	@$(WITH_CLUSTER) $(GO_TEST) -p 4 -timeout=30m $(UNIT)

.PHONY: test-chart
test-chart: $(HELM_UNITTEST) $(PROMTOOL) ## Test the templates of the chart, and the alerts
	$(HELM_UNITTEST) --strict deploy/chart
	$(PROMTOOL) check rules deploy/chart/files/rules/*.yaml deploy/chart/files/rules/production/*.yaml
	$(PROMTOOL) test rules deploy/prometheus/tests/*.yaml

.PHONY: test-hostile
test-hostile: $(CONTROL_PLANE) build $(HELM) ## Measure how long a tenant waits next to a hostile one, on an otherwise idle machine, 5 minutes
	@echo 'go test ./deploy/e2e/hostile'
	@$(GO_TEST_PROGRAMS) ./deploy/e2e/hostile

.PHONY: test-random
test-random: $(CONTROL_PLANE) build ## Soak test: random edits and faults for ROUNDS (1000) from SEED (random)
	@echo 'go test ./deploy/e2e/random, $(or $(ROUNDS),1000) rounds'
	@ROUNDS='$(or $(ROUNDS),1000)' SEED='$(or $(SEED),$(shell date +%s))' $(SHARED_FLAGS) $(WITH_CLUSTER) go test $(TEST_BUILD) -count=1 -timeout=0 -v ./deploy/e2e/random

.PHONY: test-manifests
test-manifests: $(CONTROL_PLANE) build $(HELM) ## Test the rendered chart and the folder MANIFESTS with a real API server
	@echo 'go test ./deploy/e2e/manifests'
	@HELM='$(HERE)/$(HELM)' MANIFESTS='$(abspath $(MANIFESTS))' $(WITH_CLUSTER) $(GO_TEST) -count=1 ./deploy/e2e/manifests

.PHONY: test-compose
test-compose: ## Test docker compose: all profiles, and faults under load (10 minutes)
	@echo 'deploy/docker/test, with images of version $(IMAGE_VERSION)'
	@$(SHARED_FLAGS) VERSION=$(IMAGE_VERSION) deploy/docker/test

.PHONY: test-cluster
test-cluster: build $(HELM) ## Test the chart in the cluster of KUBECONFIG (10 minutes; variables: deploy/tools/test-cluster)
	@echo 'deploy/tools/test-cluster, with images of version $(IMAGE_VERSION)'
	@$(SHARED_FLAGS) HELM='$(HERE)/$(HELM)' CHART='$(abspath $(CHART))' MANIFESTS='$(abspath $(MANIFESTS))' VERSION='$(IMAGE_VERSION)' deploy/tools/test-cluster

.PHONY: fuzz
fuzz: ## Fuzz each target for FUZZTIME (10s)
	deploy/tools/fuzz $(FUZZTIME) $(MODULES)

RELEASE_TOOLS := HELM='$(HERE)/$(HELM)' GORELEASER='$(HERE)/$(GORELEASER)' SYFT='$(HERE)/$(SYFT)'

.PHONY: release
release: $(GORELEASER) $(SYFT) $(HELM) $(VALIDATE_KREW) $(CONTROL_PLANE) ## Make the files of release VERSION=v1.2.3 in dist/ and try them
	@$(RELEASE_TOOLS) LDFLAGS='$(LDFLAGS)' NO_DWARF='$(NO_DWARF)' deploy/tools/release '$(VERSION)'
	@$(WITH_ASSETS) $(RELEASE_TOOLS) VALIDATE_KREW='$(VALIDATE_KREW)' deploy/tools/try-release dist '$(VERSION)'

.PHONY: try-release
try-release: ## Try the release VERSION in dist/ with an API server, in containers and in the cluster of KUBECONFIG
	$(MAKE) test-manifests MANIFESTS=dist
	$(MAKE) test-compose VERSION='$(VERSION)'
	$(MAKE) test-cluster VERSION='$(VERSION)' CHART='dist/curl-me-that-$(VERSION:v%=%).tgz' MANIFESTS=dist

.PHONY: release-again
release-again: $(GORELEASER) $(SYFT) $(HELM) ## Make the files of dist/ again from a fresh clone, and compare them
	@$(RELEASE_TOOLS) LDFLAGS='$(LDFLAGS)' NO_DWARF='$(NO_DWARF)' deploy/tools/release-again '$(VERSION)'

BENCH = $(WITH_CLUSTER) env CURLMETHAT_BIN='$(HERE)/bin' $(SHARED_FLAGS) go test $(TEST_BUILD) -count=1 -timeout=0 -v ./deploy/e2e/bench

.PHONY: bench
bench: $(CONTROL_PLANE) build ## Benchmark MODE fill (bare patches for comparison), refresh or slow-host, with N keys in ROUNDS
	@echo 'go test ./deploy/e2e/bench'
	@N='$(N)' ROUNDS='$(ROUNDS)' $(BENCH) -ginkgo.v -ginkgo.focus '$(or $(MODE),fill):'

.PHONY: bench-short
bench-short: $(CONTROL_PLANE) build ## Run each benchmark with 200 keys, to check that it works
	@echo 'go test ./deploy/e2e/bench'
	@N=200 ROUNDS=1 LATENCIES=100ms FETCHERS='1 2' $(BENCH)

##@ Change

.PHONY: generate
generate: $(BUF) $(PROTOC_GEN_GO) $(CONTROLLER_GEN) $(HELM) ## Generate Go code from .proto files, the CRD of Watchers, pages and manifests
	@echo 'proto/**/*.pb.go, the CRD, deploy/docs, the policies and rights without helm'
	@$(WITH_PROTOC_GEN_GO) $(BUF) generate proto --template proto/buf.gen.yaml --output proto
	@deploy/tools/generate-watchers $(CONTROLLER_GEN)
	@deploy/tools/generate-chart $(HELM)
	@deploy/tools/generate-recipes
	@UPDATE_METRICS=1 $(SHARED_FLAGS) go test -count=1 ./deploy/local/doctest -ginkgo.focus 'page about metrics'

.PHONY: fmt
fmt: $(BUF) $(GOLANGCI_LINT) ## Format Go and .proto files
	$(BUF) format -w proto
	$(GOLANGCI_LINT) fmt $(MODULES)

.PHONY: tidy
tidy: ## Tidy all go.mod files and sync the workspace
	go work sync
	@for module in $(MODULES); do (cd $$module && go mod tidy) || exit 1; done

.PHONY: lint
lint: $(GOLANGCI_LINT) ## Run the linters of .golangci.yaml
	@echo 'golangci-lint run'
	@$(SHARED_FLAGS) $(GOLANGCI_LINT) run $(PACKAGES)

.PHONY: verify
verify: lint $(BUF) $(PROTOC_GEN_GO) $(CONTROLLER_GEN) $(ACTIONLINT) $(HELM) $(GOVULNCHECK) ## Check generated files, schema, pages, modules, imports, chart, format and linters
	$(BUF) lint proto
	@$(WITH_PROTOC_GEN_GO) deploy/tools/verify-generated $(BUF)
	deploy/tools/verify-breaking $(BUF)
	deploy/tools/generate-watchers $(CONTROLLER_GEN) --check
	deploy/tools/generate-chart $(HELM) --check
	deploy/tools/generate-recipes --check
	$(SHARED_FLAGS) go test $(TEST_BUILD) -count=1 ./deploy/local/doctest -ginkgo.focus 'The pages'
	$(ACTIONLINT) -shellcheck= -pyflakes=
	deploy/tools/verify-pins
	deploy/tools/verify-modules $(MODULES)
	deploy/tools/verify-imports ./fetcher/... '^(sigs\.)?k8s\.io/'
	deploy/tools/verify-imports ./deploy/local/cmd/curl-me-that '^k8s\.io/client-go/(informers|kubernetes)$$'
	deploy/tools/verify-imports ./proto/curlmethat/... '^github\.com/nats-io/|^net/http$$|k8s\.io/'
	deploy/tools/verify-console
	@for values in deploy/chart/ci/*.yaml; do $(HELM) lint --strict --quiet deploy/chart --values $$values --set 'networkPolicy.apiServer.cidrs={10.96.0.1/32}' || exit 1; done
	$(BUF) format --diff --exit-code proto
	$(GOLANGCI_LINT) fmt --diff $(MODULES)
	$(SHARED_FLAGS) go vet $(PACKAGES)
	deploy/tools/verify-vulnerabilities $(GOVULNCHECK) $(MODULES)

.PHONY: clean
clean: ## Remove build results, but keep .cache
	rm -rf bin dist
