# A menu: what is built is decided in Go, not here.
VERSION  := 0.1.0
# Nothing in a release, which .goreleaser.yml makes.
PRERELEASE := dev
MODULE   := github.com/hardtack/packer-plugin-hardtack
BUILD    := build
BIN      := $(BUILD)/bin
GOARCHES := amd64 arm64
LDFLAGS  := -s -w -X $(MODULE)/pkg/base/version.Version=$(VERSION) -X $(MODULE)/pkg/base/version.Prerelease=$(PRERELEASE)
GO_BUILD := CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags '$(LDFLAGS)'
AGENTS   := cmd/packer-plugin-hardtack/provisioner/agent
# What an image is made from; `make image KUBERNETES=1.35 SOURCE=release` are the usual changes.
KUBERNETES ?= 1.36
ROOTFS     ?= writable
IMAGE_ARCH ?= $(shell go env GOARCH)
SOURCE     ?= auto
IMAGE      := $(BUILD)/hardtack.qcow2
SEALED     := $(BUILD)/sealed/hardtack.qcow2
ARM64      := $(BUILD)/arm64/hardtack.qcow2
SEALED_ARM64 := $(BUILD)/sealed-arm64/hardtack.qcow2

# Packer finds our plugin in a directory of this checkout and never in the user's own.
export CHECKPOINT_DISABLE := 1
export PACKER_PLUGIN_PATH := $(CURDIR)/$(BUILD)/plugins
# Where scripts/setup --judges puts what the AWS tests are judged by.
export PATH := $(or $(XDG_DATA_HOME),$(HOME)/.local/share)/hardtack/judges/bin:$(PATH)
PACKER  = $(or $(shell command -v packer),$(shell scripts/tool packer))
# Root keeps caches of its own (-H), so that nothing in the user's becomes root's; sudo resets PATH.
ROOT   := $(if $(filter 0,$(shell id -u)),,sudo -H --preserve-env=GOPROXY,GOFLAGS,PACKER_PLUGIN_PATH,CHECKPOINT_DISABLE env "PATH=$(PATH)")

# Schedules of etcd in make e2e, which may take two minutes of it: ten took 79 s, and TestTorn 45 s, on two cores with a load of 27.
FEW     = 8
E2E     = HARDTACK_E2E=1 HARDTACK_IMAGE=$(CURDIR)/$(IMAGE) HARDTACK_SEALED_IMAGE=$(CURDIR)/$(SEALED) HARDTACK_PACKER=$(PACKER) GOTESTSUM_FORMAT=testname scripts/test

# Packages whose tests do more where components are built and an image is baked.
BUILT    = ./pkg/node/kubelet ./pkg/ami/cloud ./pkg/disk/qcow2 ./pkg/image/build ./pkg/image/containerd ./pkg/dns/record/... ./pkg/dns/reconcile/... ./pkg/spec/... ./pkg/cluster/template ./pkg/node/systemd/... ./cmd/packer-plugin-hardtack/awstest
# The tests of whole clusters, and what make test has run of the same package.
CLUSTERS = ^(TestCluster|TestLab|TestLabFaults)$$
DONE     = ^(TestEvict|TestEvictNotices|TestLaunchByMasters|TestTunnel)$$

.DEFAULT_GOAL := help
.PHONY: help setup build agent plugin lambda image sealed arm64 sealed-arm64 demo test test-race lint generate verify e2e e2e-long conformance nemesis bench mutants clean

help: ## Show this menu
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## Install the Debian packages that this machine lacks
	@scripts/setup --check || scripts/setup

build: agent ## Build the hardtack command and the agents into build/bin
	@mkdir -p $(BIN)
	CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags '$(LDFLAGS) -X $(MODULE)/pkg/base/version.Commit=$(shell git rev-parse HEAD 2>/dev/null)' -o $(BIN)/hardtack ./cmd/hardtack

# As the programs of a lock, they are inlined within the standard library alone: each machine reads nearly all of them from a cold disk.
agent: ## Build the programs of the machines for every architecture, where the plugin embeds them
	@for arch in $(GOARCHES); do for program in agent userdata hello init; do \
	  GOARCH=$$arch $(GO_BUILD) -gcflags all=-l -gcflags std= -o $(AGENTS)/hardtack-$$program-linux-$$arch ./cmd/hardtack-$$program || exit 1; done; done

plugin: agent ## Build the Packer plugin and install it into build/plugins
	@mkdir -p $(BIN)
	$(GO_BUILD) -o $(BIN)/packer-plugin-hardtack ./cmd/packer-plugin-hardtack
	@# Packer takes the newest version that is there: a build of another commit may call itself newer than this one.
	rm -rf $(BUILD)/plugins/github.com/hardtack
	$(PACKER) plugins install --path $(BIN)/packer-plugin-hardtack github.com/hardtack/hardtack >/dev/null

lambda: ## Build the DNS function's zips into build/, for arm64 and amd64
	@for arch in $(GOARCHES); do \
	  GOARCH=$$arch $(GO_BUILD) -tags lambda.norpc -o $(BUILD)/lambda-$$arch/bootstrap ./lambda/function && \
	  go run ./lambda/pack -max 4000000 -o $(BUILD)/hardtack-dns-$$arch.zip $(BUILD)/lambda-$$arch/bootstrap || exit 1; done
	@ls -l $(BUILD)/hardtack-dns-*.zip

image: setup build plugin ## Bake build/hardtack.qcow2 with image.json, SBOM and role table (root)
	$(PACKER) validate -var lock=kubernetes-$(KUBERNETES) images/local.pkr.hcl
	$(ROOT) $(PACKER) build -force -var lock=kubernetes-$(KUBERNETES) -var source=$(SOURCE) -var root=$(ROOTFS) -var architecture=$(IMAGE_ARCH) -var output=$(BUILD) images/local.pkr.hcl
	@$(if $(ROOT),sudo chown -R $(shell id -u):$(shell id -g) $(BUILD))
	@$(BIN)/hardtack roles && ls -lh $(IMAGE) $(BUILD)/image.json $(BUILD)/sbom.cdx.json

sealed: ## The same image with a root that nothing can change, in build/sealed (root)
	$(MAKE) image ROOTFS=sealed BUILD=$(BUILD)/sealed

arm64: ## The same image for arm64, in build/arm64: on amd64 with Debian's cross compiler, its scripts emulated (root)
	scripts/setup --arm64
	$(MAKE) image IMAGE_ARCH=arm64 BUILD=$(BUILD)/arm64

sealed-arm64: ## The same image for arm64 with a sealed root, in build/sealed-arm64 (root)
	scripts/setup --arm64
	$(MAKE) image IMAGE_ARCH=arm64 ROOTFS=sealed BUILD=$(BUILD)/sealed-arm64

demo: setup build ## One master, two minions and a pod behind a Service; bakes where that is due (KEEP=1 leaves it up)
	@MAKE='$(MAKE)' scripts/demo

# A package has 20 minutes: the command's tests took 3.5 on two cores, other computers were three times slower, and Go's limit is 10.
test: setup lint ## Lint and run every test that needs no machine
	HARDTACK_PACKER=$(PACKER) scripts/test -timeout 20m ./...

test-race: setup ## The same tests with the race detector
	HARDTACK_PACKER=$(PACKER) scripts/test -timeout 20m -race ./...

lint: ## gofmt, vet, golangci-lint, shellcheck, and Hardtack's own lint of the units
	scripts/lint

generate: ## Write the generated code and documents again
	go generate ./...

verify: generate lint ## Check that nothing generated is stale
	go mod tidy
	git diff --exit-code

e2e: setup plugin $(if $(wildcard $(IMAGE)),,image) $(if $(wildcard $(SEALED)),,sealed) ## Boot the baked image in every role and as clusters, and break etcd (build/hardtack.qcow2; baked if missing)
	@# All of them run, whichever failed. The clusters are last: where CI's time is over, they skip their parts by name.
	@# Of etcd's schedules four run at once: a slow computer bears no more.
	@status=0; \
	$(E2E) -timeout 75m $(BUILT) || status=1; \
	SCHEDULES=$(or $(SCHEDULES),$(FEW)) $(E2E) -timeout 30m ./pkg/etcd/nemesis -args -worlds=4 || status=1; \
	$(E2E) -timeout 75m -skip '$(CLUSTERS)|$(DONE)' ./pkg/e2e || status=1; \
	$(E2E) -timeout 75m -run '$(CLUSTERS)' ./pkg/e2e || status=1; \
	exit $$status

e2e-long: setup plugin $(if $(wildcard $(IMAGE)),,image) $(if $(wildcard $(ARM64)),,arm64) $(if $(wildcard $(SEALED_ARM64)),,sealed-arm64) ## What takes CI past its hour: machines of arm64, keys replaced in a running cluster, etcd's members by their tags and by force, machines without a cloud, minions replaced under an application, cluster-autoscaler where its program is, a stack's whole life, a role of one's own, Kubernetes' conformance specs, critest, a control plane under 1000 nodes and 5000 pods, etcd's next minor version, a release by GoReleaser, and a thousand schedules of etcd
	HARDTACK_E2E_LONG=1 HARDTACK_ARM64_IMAGE=$(CURDIR)/$(ARM64) HARDTACK_SEALED_ARM64_IMAGE=$(CURDIR)/$(SEALED_ARM64) $(E2E) -p 1 -timeout 600m -run 'TestARM64Roles|TestSealedARM64Roles|TestLabARM64|TestRotation|TestLabRotation|TestLabEtcd|TestLabTags|TestLabLeaving|TestLabAutoscaler|TestMetal|TestConformance|TestContainerRuntime|TestSimulator|TestStack|TestIngress|TestHistories' ./pkg/e2e ./pkg/dns/reconcile ./pkg/dns/record
	HARDTACK_E2E_LONG=1 HARDTACK_SCALE=1000,5000 $(E2E) -timeout 90m -run '^TestScale(Masters)?$$' ./pkg/e2e
	$(E2E) -timeout 30m -run TestRealUpgrade ./pkg/etcd/operate
	HARDTACK_E2E_LONG=1 $(E2E) -timeout 60m -run TestGoReleaser ./cmd/packer-plugin-hardtack
	HARDTACK_E2E_LONG=1 SCHEDULES=$(or $(SCHEDULES),1000) $(E2E) -timeout 180m ./pkg/etcd/nemesis

conformance: setup plugin $(if $(wildcard $(IMAGE)),,image) ## Have Kubernetes' own end-to-end tests judge a cluster in the lab, and go on where they were stopped (LIST=all; LIST=@FILE; LIST=short, the default)
	HARDTACK_E2E_LONG=1 CONFORMANCE=$(or $(LIST),short) $(E2E) -timeout 24h -run 'TestConformance' ./pkg/e2e

nemesis: setup ## Real etcd under the agent's code, while machines, disks, network, names and store fail (SCHEDULES=100; root)
	HARDTACK_E2E=1 SCHEDULES=$(or $(SCHEDULES),100) go test -count=1 -v -timeout 120m -run 'TestNemesis|TestTorn' ./pkg/etcd/nemesis

bench: setup ## Go benchmarks, and the bake against its floor and against mkosi
	go test -run '^$$' -bench . ./pkg/...
	$(ROOT) scripts/bench-bake

mutants: ## Put small faults into packages, one at a time, and name those that their tests do not notice (PKG=pkg/pki; several, quoted)
	@test -n '$(PKG)' || { echo 'name one or more packages: make mutants PKG="pkg/pki pkg/node/imds"; the last results are in scripts/README.md' >&2; exit 2; }
	go run ./scripts/mutants $(PKG)

clean: ## Remove build/ (caches stay)
	rm -rf $(BUILD) $(AGENTS)/hardtack-*-linux-*
