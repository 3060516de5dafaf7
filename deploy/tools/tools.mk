# Development tools. Each is a module outside go.work, because their dependencies conflict. The
# path of a binary contains the versions of the tool and of Go, so a new version of either
# triggers a build.

TOOLS := .cache/tools
comma := ,

GO_VERSION       := $(shell go env GOVERSION)
BUF_VERSION      := $(shell sed -n 's|.*github.com/bufbuild/buf \(v[^ ]*\).*|\1|p' deploy/tools/buf/go.mod)
GOLANGCI_VERSION := $(shell sed -n 's|.*github.com/golangci/golangci-lint/v2 \(v[^ ]*\).*|\1|p' deploy/tools/golangci-lint/go.mod)
HELM_VERSION     := $(shell sed -n 's|.*helm.sh/helm/v4 \(v[^ ]*\).*|\1|p' deploy/tools/helm/go.mod)
UNITTEST_VERSION := $(shell sed -n 's|.*github.com/helm-unittest/helm-unittest \(v[^ ]*\).*|\1|p' deploy/tools/helm-unittest/go.mod)
PROMETHEUS_VERSION := $(shell sed -n 's|.*github.com/prometheus/prometheus \(v[^ ]*\).*|\1|p' deploy/tools/prometheus/go.mod)
ACTIONLINT_VERSION := $(shell sed -n 's|.*github.com/rhysd/actionlint \(v[^ ]*\).*|\1|p' deploy/tools/actionlint/go.mod)
CONTROLLER_GEN_VERSION := $(shell sed -n 's|.*sigs.k8s.io/controller-tools \(v[^ ]*\).*|\1|p' deploy/tools/controller-gen/go.mod)
KREW_VERSION := $(shell sed -n 's|.*sigs.k8s.io/krew \(v[^ ]*\).*|\1|p' deploy/tools/krew/go.mod)
GORELEASER_VERSION := $(shell sed -n 's|.*github.com/goreleaser/goreleaser/v2 \(v[^ ]*\).*|\1|p' deploy/tools/goreleaser/go.mod)
SYFT_VERSION := $(shell sed -n 's|.*github.com/anchore/syft \(v[^ ]*\).*|\1|p' deploy/tools/syft/go.mod)
VULNCHECK_VERSION := $(shell sed -n 's|.*golang.org/x/vuln \(v[^ ]*\).*|\1|p' deploy/tools/govulncheck/go.mod)
KUBERNETES_VERSION := $(shell sed -n 's|.*k8s\.io/kubernetes \(v[0-9.]*\).*|\1|p' deploy/tools/control-plane/go.mod)
PROTOBUF_VERSION := $(shell sed -n 's|.*google.golang.org/protobuf \(v[^ ]*\).*|\1|p' proto/go.mod)

BUF           := $(TOOLS)/buf-$(BUF_VERSION)-$(GO_VERSION)/buf
GOLANGCI_LINT := $(TOOLS)/golangci-lint-$(GOLANGCI_VERSION)-$(GO_VERSION)/golangci-lint
HELM          := $(TOOLS)/helm-$(HELM_VERSION)-$(GO_VERSION)/helm
HELM_UNITTEST := $(TOOLS)/helm-unittest-$(UNITTEST_VERSION)-$(GO_VERSION)/helm-unittest
PROMTOOL      := $(TOOLS)/promtool-$(PROMETHEUS_VERSION)-$(GO_VERSION)/promtool
ACTIONLINT    := $(TOOLS)/actionlint-$(ACTIONLINT_VERSION)-$(GO_VERSION)/actionlint
CONTROLLER_GEN := $(TOOLS)/controller-gen-$(CONTROLLER_GEN_VERSION)-$(GO_VERSION)/controller-gen
VALIDATE_KREW := $(TOOLS)/validate-krew-manifest-$(KREW_VERSION)-$(GO_VERSION)/validate-krew-manifest
GORELEASER    := $(TOOLS)/goreleaser-$(GORELEASER_VERSION)-$(GO_VERSION)/goreleaser
SYFT          := $(TOOLS)/syft-$(SYFT_VERSION)-$(GO_VERSION)/syft
GOVULNCHECK   := $(TOOLS)/govulncheck-$(VULNCHECK_VERSION)-$(GO_VERSION)/govulncheck
PROTOC_GEN_GO := $(TOOLS)/protoc-gen-go-$(PROTOBUF_VERSION)-$(GO_VERSION)/protoc-gen-go

# buf finds the generator in PATH.
WITH_PROTOC_GEN_GO := PATH="$(CURDIR)/$(dir $(PROTOC_GEN_GO)):$$PATH"

# The caches of the tools are in the checkout, so that the tools need no home directory.
export GOLANGCI_LINT_CACHE := $(CURDIR)/.cache/golangci-lint
export BUF_CACHE_DIR       := $(CURDIR)/.cache/buf

# $(call build-tool,module directory,package,flags)
build-tool = GOWORK=off CGO_ENABLED=0 deploy/tools/build -C $(1) -v $(3) -trimpath -buildvcs=false $(NO_DWARF) -ldflags '-s -w' -o '$(HERE)/$@' $(2)

$(BUF):
	@echo "building buf $(BUF_VERSION) (a minute the first time)…"
	@$(call build-tool,deploy/tools/buf,github.com/bufbuild/buf/cmd/buf)

$(GOLANGCI_LINT):
	@echo "building golangci-lint $(GOLANGCI_VERSION) (a few minutes the first time)…"
	@$(call build-tool,deploy/tools/golangci-lint,github.com/golangci/golangci-lint/v2/cmd/golangci-lint)

$(HELM):
	@echo "building helm $(HELM_VERSION) (a few minutes the first time)…"
	@$(call build-tool,deploy/tools/helm,helm.sh/helm/v4/cmd/helm)

# helm-unittest is a helm plugin that also works as a command.
$(HELM_UNITTEST):
	@echo "building helm-unittest $(UNITTEST_VERSION) (a few minutes the first time)…"
	@$(call build-tool,deploy/tools/helm-unittest,github.com/helm-unittest/helm-unittest/cmd/helm-unittest)

# Service discovery, half of the code, is left out: tests of rules do not need it.
$(PROMTOOL):
	@echo "building promtool $(PROMETHEUS_VERSION) (two minutes the first time)…"
	@$(call build-tool,deploy/tools/prometheus,github.com/prometheus/prometheus/cmd/promtool,-tags remove_all_sd$(comma)enable_dns_sd)

$(ACTIONLINT):
	@echo "building actionlint $(ACTIONLINT_VERSION)…"
	@$(call build-tool,deploy/tools/actionlint,github.com/rhysd/actionlint/cmd/actionlint)

$(CONTROLLER_GEN):
	@echo "building controller-gen $(CONTROLLER_GEN_VERSION)…"
	@$(call build-tool,deploy/tools/controller-gen,sigs.k8s.io/controller-tools/cmd/controller-gen)

$(VALIDATE_KREW):
	@echo "building validate-krew-manifest $(KREW_VERSION)…"
	@$(call build-tool,deploy/tools/krew,sigs.k8s.io/krew/cmd/validate-krew-manifest)

# Only a release needs goreleaser and syft.
$(GORELEASER):
	@echo "building goreleaser $(GORELEASER_VERSION) (minutes the first time)…"
	@$(call build-tool,deploy/tools/goreleaser,github.com/goreleaser/goreleaser/v2)

$(SYFT):
	@echo "building syft $(SYFT_VERSION) (minutes the first time)…"
	@$(call build-tool,deploy/tools/syft,github.com/anchore/syft/cmd/syft)

$(GOVULNCHECK):
	@echo "building govulncheck $(VULNCHECK_VERSION)…"
	@$(call build-tool,deploy/tools/govulncheck,golang.org/x/vuln/cmd/govulncheck)

# The version of the generator is that of the protobuf module that the services link.
$(PROTOC_GEN_GO):
	@echo "building protoc-gen-go $(PROTOBUF_VERSION)…"
	@$(call build-tool,proto,google.golang.org/protobuf/cmd/protoc-gen-go)

# The programs of the control plane. Checkouts share them, because their build takes minutes.
ifdef KUBEBUILDER_ASSETS
ASSETS := $(KUBEBUILDER_ASSETS)
else
CACHE         := $(or $(XDG_CACHE_HOME),$(HOME:%=%/.cache))
# Make cannot have targets in a folder with a space.
ASSETS        := $(if $(filter 1,$(words $(CACHE))),$(CACHE),.cache)/curl-me-that/kubernetes-$(KUBERNETES_VERSION)
CONTROL_PLANE := $(ASSETS)/etcd $(ASSETS)/kube-apiserver $(ASSETS)/kubectl

$(CONTROL_PLANE):
	@deploy/tools/control-plane/get '$(@D)' '$(@F)'
endif
