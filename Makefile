# A Go toolchain is all it takes, and CGO is off so that every build shares one cache.
export CGO_ENABLED = 0

GO             ?= go
CRDS           := deploy/crds
CONTROLLER_GEN := $(GO) tool -modfile="$(CURDIR)/tools/go.mod" controller-gen
GOLANGCI_LINT   = $(shell $(GO) tool -n -modfile="$(CURDIR)/tools/lint/go.mod" golangci-lint)

# Runs tests that start programs. What fails is run once more, if it is not more than three tests, and remembered for `make flaky`.
RERUN = mkdir -p bin/reruns && $(GO) tool -modfile="$(CURDIR)/tools/go.mod" gotestsum --format pkgname \
	--rerun-fails=1 --rerun-fails-max-failures=3

# The modules beside that of the programs: docs/modules.md.
MODULES := api internal/machinery addon addon/chart

# What is built and tested with the versions of the programs. Nothing of theirs needs addon/chart, which has Helm.
PACKAGES := ./... $(foreach module,$(filter-out addon/chart,$(MODULES)),github.com/capstan-io/capstan/$(module)/...)

# The packages with tests that start programs, and all others.
STARTS_PROGRAMS := ./test/integration/... ./test/e2e/...
OTHERS           = $$($(GO) list $(PACKAGES) | grep -vE '/test/(integration|e2e|campaign|realcluster|walkthrough)(/|$$)')

# The packages whose goroutines share state: agents that apply works, brokers and tunnels, the queues of the hub, the scheduler.
RACE ?= ./internal/agent/work... ./internal/broker/... ./internal/hub/placement/... ./internal/hub/work... ./internal/placement/... \
	./internal/reach/... ./internal/agent/addon/clusterproxy/... ./internal/agent/brokerapi ./internal/agent/mqttbroker

# What a release has.
PROGRAMS := capstan capstan-agent capstan-charts capstan-hub capstan-sandbox

# What `capstan up` runs.
UP := capstan capstan-agent capstan-hub capstan-sandbox

# How long `make fuzz` runs each target.
FUZZTIME ?= 10m

# Which measures: TestBench/works is those of works.
BENCH ?= TestBench

# How many placements `make bench-placement` creates at once.
PLACEMENTS ?= 100,1000,10000

# The sizes of the fleets that `make bench-fleet` simulates.
FLEET ?= 100,500,1000

# The agents of these fleets: real ones, or light ones, which manage nothing and of which a machine holds thousands.
AGENTS ?= real

# How many works `make bench-fleet-works` gives each cluster.
WORKS ?= 5

# How many clusters the ManifestWorkReplicaSet of `make bench-sets` has.
SETS ?= 1000

# How long the hub is away in these fleets, such as 10m; not at all by default.
AWAY ?= 0

# Runs measurements of test/bench, of which those of large fleets take hours.
MEASURE = $(GO) test ./test/bench -tags bench -count=1 -timeout 6h -v

# The results that docs/benchmarks shows.
RESULTS := docs/benchmarks/results

# What `make campaign` runs: how many writes of each step get each fault, or 0 for all, and which ones.
CAMPAIGN ?= .
POINTS   ?= 0
FAULTS   ?= crash,away,lost,failed,conflict
SEED     ?= 1
# The one write that gets them, as failures name it.
POINT    ?=

# Where `make charts` has index.yaml look for the archives; next to it, if it is empty.
CHARTS_URL ?=

# A release sets VERSION; other builds know their commit. TAG is the tag of the images, for which `capstan` asks that is built with it.
VERSION ?=
TAG     ?= $(VERSION_TAG)

# The tag by default, which says of what version or commit images are.
VERSION_TAG = $(or $(subst +,_,$(VERSION)),devel$(addprefix -,$(shell git rev-parse --short=12 HEAD)))

# Without symbols for a debugger, which double the size; LDFLAGS= keeps them. Stack traces and profiles need none.
LDFLAGS := -s -w

# The programs that checks and measurements run do not know their commit: one that changes nothing in a program leaves it as it is.
BUILDVCS := -buildvcs=auto
test test-argocd test-interop build-interop test-clusters build-clusters build-clusteradm test-images race audit vuln verify-generate: BUILDVCS := -buildvcs=false
campaign bench bench%: BUILDVCS := -buildvcs=false

# The version of what is built: none in programs that do not know their commit.
STAMP   = $(or $(VERSION),$(if $(filter -buildvcs=false,$(BUILDVCS)),,$(TAG)))
STAMPED = $(addprefix -X github.com/capstan-io/capstan/internal/program.version=,$(STAMP))

# Programs are built beside bin/ and replaced there if they differ: tools/update.
BUILD = $(GO) build $(BUILDVCS) -ldflags "$(LDFLAGS) $(STAMPED)"

# What clusters with real pods are made of: docs/testing-on-real-clusters.md. KUBERNETES is the version that they say they have.
HYPERKUBE  := test/realcluster/hyperkube
KUBERNETES = $(shell $(GO) list -C $(HYPERKUBE) -m -f '{{.Version}}' k8s.io/kubernetes)
VERSIONED  = -X k8s.io/component-base/version.gitVersion=$(KUBERNETES) \
	-X k8s.io/component-base/version.gitMajor=$(word 1,$(subst ., ,$(KUBERNETES:v%=%))) \
	-X k8s.io/component-base/version.gitMinor=$(word 2,$(subst ., ,$(KUBERNETES)))

# The module of the tests against Argo CD, which requires other versions of Kubernetes than the programs.
ARGOCD := test/argocd

# The module of the tests with programs and libraries of others: Open Cluster Management, its SDK and its add-on framework, and Mosquitto.
INTEROP := test/interop

# The tests that `make test-clusters` runs, and whether those that are slow are among them.
CLUSTER_TESTS ?= ./test/realcluster/... ./test/walkthrough
SLOW          :=

# Tells tests the versions of the packages whose programs they start: as Go does not look at what is outside of a module before it takes a
# result from its cache, tests that ask for this variable run again when a package changes. test/realcluster says which ones clusters need.
CLUSTER_PACKAGES := busybox-static conntrack containerd containernetworking-plugins iproute2 iptables runc util-linux
EXPORT_VERSIONS   = export CAPSTAN_TEST_TOOLS="$$(dpkg-query -W -f='$${Package} $${Version}\n' $(1) 2>/dev/null)"

# The cluster that `make cluster-up` starts and `make cluster-down` stops.
NAME ?= capstan

# The images: where they are written, for which architectures, and where they are pushed to. A release is tagged with its version, other builds
# with their commit. Without TRIMPATH, programs have the paths of this machine in them, so that images differ between machines, and are
# built of the packages that `make build` has compiled. The tag leaves out pages of gRPC that nothing serves: they keep the linker from
# dropping what nobody calls, which is a fifth of capstan-agent.
IMAGES   ?= dist/images
ARCHS    ?= amd64 arm64
TRIMPATH ?= -trimpath
BUILD_TAGS ?= grpcnotrace
REGISTRY ?=
COMMIT    = $(shell git rev-parse HEAD)$(if $(shell git status --porcelain),-dirty)

# The time of the commit, which images have in place of that of the build.
SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct)

# Lists the packages with tests that neither link an API server or etcd, which takes minutes, nor start the programs.
LIGHT := $(GO) list -test -f '{{.ImportPath}} {{join .Deps " "}}' $(PACKAGES) | \
	awk '$$1 ~ /\.test$$/ && !/ (k8s\.io\/kubernetes|go\.etcd\.io\/etcd\/server|github\.com\/capstan-io\/capstan\/test\/env)(\/| |$$)/ { sub(/\.test$$/, "", $$1); print $$1 }'

# Written by `make generate` alone.
GENERATED := ':(glob)api/**/zz_generated.deepcopy.go' '$(CRDS)/*.yaml' docs/reference \
	'deploy/charts/*/crds/*.yaml' 'deploy/charts/*/values.schema.json' deploy/olm docs/benchmarks/README.md 'docs/benchmarks/*.svg'

# The times of generated files follow from their content, as those of all files where .ci/run works. A file that is replaced changes the
# time of its folder.
KEEP_TIMES = { git ls-files -z -- $(GENERATED); git ls-files -z -- $(GENERATED) | xargs -0 dirname -z; } | xargs -0 tools/content-times

define CHECK_GENERATED
stale=$$(git status --porcelain -- $(GENERATED)); \
if [ -n "$$stale" ]; then \
	echo "These files do not match api/ or the commands; run \`make generate\` and commit them:"; echo "$$stale"; \
	exit 1; \
fi
endef

.DEFAULT_GOAL := help

.PHONY: help
help: ## Show this help
	@awk 'BEGIN { FS = ":.*## " } /^[a-z-]+:.*## / { printf "  %-19s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: generate
generate: ## Generate deepcopy functions and CRDs from api/, files of the charts, bundles, docs/reference and docs/benchmarks
	$(MAKE) write-generated
	$(MAKE) docs BUILDVCS="$(BUILDVCS)"

.PHONY: write-generated
write-generated:
	cd api && $(CONTROLLER_GEN) object crd paths=./... output:crd:dir=../$(CRDS)
	for kind in clustermanagementaddons managedclusteraddons; do \
		crd=$(CRDS)/addon.open-cluster-management.io_$$kind.yaml; \
		sed '/^spec:$$/r tools/crd-conversion.yaml' $$crd > $$crd.new && mv $$crd.new $$crd || exit 1; \
	done
	for crd in $(CRDS)/*.yaml; do \
		sed -E -f tools/crd-quantities.sed $$crd > $$crd.new && mv $$crd.new $$crd || exit 1; \
	done
	$(MAKE) api-reference
	$(GO) -C tools run ./charts -root "$(CURDIR)"
	$(GO) -C tools run ./benchreport -results "$(CURDIR)/$(RESULTS)" -out "$(CURDIR)/docs/benchmarks"
	$(GO) run ./deploy/charts/bundle
	@$(KEEP_TIMES)

.PHONY: api-reference
api-reference:
	$(GO) -C tools run ./apireference -crds "$(CURDIR)/$(CRDS)" -out "$(CURDIR)/docs/reference/api"

.PHONY: docs
docs: api-reference build ## Generate docs/reference from the CRDs and the commands
	for program in $(PROGRAMS); do HOME='$$HOME' bin/$$program reference > docs/reference/cli/$$program.md || exit 1; done
	@$(KEEP_TIMES)

.PHONY: proto
proto: ## Generate Go code from internal/cloudevents/pb/cloudevents.proto, which takes protoc (protobuf-compiler)
	GOBIN="$(CURDIR)/bin/proto" $(GO) install google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.11
	GOBIN="$(CURDIR)/bin/proto" $(GO) install google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.6.0
	PATH="$(CURDIR)/bin/proto:$$PATH" protoc -I internal/cloudevents/pb --go_out=internal/cloudevents/pb --go_opt=paths=source_relative \
		--go-grpc_out=internal/cloudevents/pb --go-grpc_opt=paths=source_relative cloudevents.proto

.PHONY: verify-generate
verify-generate: ## Fail if generated files are not up to date: first those that no program has to be built for
	$(MAKE) write-generated
	@$(CHECK_GENERATED)
	$(MAKE) docs BUILDVCS="$(BUILDVCS)"
	@$(CHECK_GENERATED)

.PHONY: verify-modules
verify-modules: ## Fail if the go.mod of a module is not tidy
	for module in . $(MODULES) $(HYPERKUBE) $(ARGOCD) $(INTEROP) $(INTEROP)/ocm $(INTEROP)/clusteradm; do $(GO) -C $$module mod tidy -diff || exit 1; done

.PHONY: build
build: ## Build all programs, and those of the examples, into bin/
	$(BUILD) -o bin/built/ ./cmd/... ./examples/...
	@tools/update bin/built/* bin

.PHONY: images
images: ## Write images of the programs and of the examples for ARCHS into dist/images, an OCI layout and archives
	for arch in $(ARCHS); do \
		GOOS=linux GOARCH=$$arch $(GO) build -tags "$(BUILD_TAGS)" $(TRIMPATH) -buildvcs=false \
			-ldflags "-s -w -X github.com/capstan-io/capstan/internal/program.version=$(or $(VERSION),$(TAG))" \
			-o "$(IMAGES)/bin/$$arch/" ./cmd/capstan-agent ./cmd/capstan-hub ./examples/... || exit 1; \
	done
	$(GO) -C tools/images run . build -bin "$(abspath $(IMAGES))/bin" -out "$(abspath $(IMAGES))" -archs "$(ARCHS)" \
		-version "$(TAG)" -revision "$(COMMIT)" -created "$(SOURCE_DATE_EPOCH)" $(if $(REGISTRY),-registry "$(REGISTRY)")

.PHONY: push
push: ## Push what `make images` wrote of this commit to REGISTRY, such as ghcr.io/capstan-io, as TAG
	$(GO) -C tools/images run . push -from "$(abspath $(IMAGES))" -registry "$(REGISTRY)" -tag "$(TAG)" \
		-version "$(VERSION_TAG)" -revision "$(COMMIT)"

.PHONY: verify-images
verify-images: ## Build what `make images` wrote again, in another folder and without the build cache, and fail if the images differ
	tools/images/verify "$(abspath $(IMAGES))" $(MAKE) GO="$(GO)" ARCHS="$(ARCHS)" TAG="$(TAG)" REGISTRY="$(REGISTRY)"

.PHONY: charts
charts: ## Pack the Helm charts as a repository in dist/charts, and bundles in dist/olm, with the VERSION of a release
	$(GO) run ./deploy/charts/pack -version '$(VERSION)' -url '$(CHARTS_URL)' -out dist/charts
	$(GO) run ./deploy/charts/bundle -version '$(VERSION)' -out dist/olm

.PHONY: up
up: ## Build what it needs, and start a hub and two sandbox clusters on this machine, joined and with a sample work
	$(BUILD) -o bin/built/ $(addprefix ./cmd/,$(UP))
	@tools/update bin/built/* bin
	bin/capstan up

.PHONY: down
down: ## Stop what `make up` started; the data stays
	bin/capstan down

.PHONY: test
test: build ## Run the tests of what changed since they passed, but those on clusters with real pods
	$(GO) test -timeout 10m $(TESTFLAGS) $(OTHERS)
	$(RERUN) --jsonfile bin/reruns/test.json --packages "$(STARTS_PROGRAMS)" -- -timeout 25m $(TESTFLAGS)
	$(GO) test -timeout 10m $(TESTFLAGS) -skip '^TestFaults$$' ./test/campaign
	$(GO) -C tools test $(TESTFLAGS) ./flaky ./benchreport
	$(GO) -C tools/images test $(TESTFLAGS) ./...
	$(GO) -C addon/chart test $(TESTFLAGS) ./...
	$(GO) -C tools/olm test $(TESTFLAGS) ./...

.PHONY: test-all
test-all: ## Run all tests, those on clusters with real pods and the race detector, whether or not anything changed: before a release
	$(MAKE) test test-argocd test-interop test-clusters-all race TESTFLAGS="-count=1 $(TESTFLAGS)"

.PHONY: test-argocd
test-argocd: build ## Run the tests against Argo CD: its ApplicationSet controller, and its engine, which deploys through the hub
	cd $(ARGOCD) && $(RERUN) --jsonfile bin/reruns/test-argocd.json --packages ./... -- -timeout 10m $(TESTFLAGS)

.PHONY: build-interop
build-interop: ## Build the programs of Open Cluster Management that tests run, into bin/ocm
	$(GO) build -C $(INTEROP)/ocm $(BUILDVCS) -ldflags "$(LDFLAGS)" -o "$(CURDIR)/bin/built/ocm/" tool
	@tools/update bin/built/ocm/* bin/ocm

.PHONY: test-interop
test-interop: build build-interop ## Run the tests with Open Cluster Management, its SDK and its add-on framework, and with Mosquitto, which it installs as root
	@command -v mosquitto /usr/sbin/mosquitto >/dev/null || \
		{ dpkg --configure -a && apt-get update -qq && apt-get install -y -qq --no-install-recommends mosquitto; }
	cd $(INTEROP) && export GOLANG_PROTOBUF_REGISTRATION_CONFLICT=ignore && $(call EXPORT_VERSIONS,mosquitto) && \
		$(RERUN) --jsonfile bin/reruns/test-interop.json --packages ./... -- -timeout 10m $(TESTFLAGS)

.PHONY: build-clusters
build-clusters: ## Build what clusters with real pods are made of, into bin/
	$(BUILD) -o bin/built/ ./test/realcluster/cmd/... ./test/realcluster/testpod
	$(GO) build -C $(HYPERKUBE) $(BUILDVCS) -ldflags "$(LDFLAGS) $(VERSIONED)" -o "$(CURDIR)/bin/built/"
	@tools/update bin/built/* bin

.PHONY: build-clusteradm
build-clusteradm: ## Build the command line of Open Cluster Management, which tests on clusters with real pods run, into bin/ocm
	$(GO) build -C $(INTEROP)/clusteradm $(BUILDVCS) -ldflags "$(LDFLAGS)" -o "$(CURDIR)/bin/built/ocm/" tool
	@tools/update bin/built/ocm/clusteradm bin/ocm

.PHONY: test-images
test-images: ## Write the images that tests on clusters with real pods use
	$(MAKE) images IMAGES=bin/images/built ARCHS=$(shell $(GO) env GOARCH) TAG=test COMMIT=test SOURCE_DATE_EPOCH=0 TRIMPATH= BUILD_TAGS=
	@tools/update bin/images/built/*.tar bin/images

# Tests of clusters mostly wait. How many run at a time depends on how many clusters they start, not on the number of cores.
.PHONY: test-clusters
test-clusters: build build-clusters test-images ## Run the tests that start clusters with real pods, which takes root; CLUSTER_TESTS names others
	@if [ "$$(id -u)" != 0 ]; then \
		echo "The tests on clusters with real pods are skipped:"; bin/realcluster install || true; \
	else \
		bin/realcluster install && export CAPSTAN_TEST_CLUSTERS=$(if $(SLOW),all,1) && $(call EXPORT_VERSIONS,$(CLUSTER_PACKAGES)) && \
			$(RERUN) --jsonfile bin/reruns/test-clusters.json --packages "$(CLUSTER_TESTS)" -- \
				-timeout $(if $(SLOW),120m,40m) $(TESTFLAGS); \
	fi

.PHONY: test-clusters-all
test-clusters-all: SLOW := yes
test-clusters-all: build-interop build-clusteradm test-clusters ## Run the tests that start clusters with real pods, also those that each check has no time for

.PHONY: flaky
flaky: ## List the tests that passed only when they were run once more
	@$(GO) -C tools run ./flaky $(foreach step,test test-argocd test-interop test-clusters,"$(CURDIR)/bin/reruns/$(step).json")

.PHONY: cluster-up
cluster-up: build-clusters ## Start a cluster with real pods and the name NAME, and print the path of its kubeconfig
	@bin/realcluster install && bin/realcluster up $(NAME)

.PHONY: cluster-down
cluster-down: ## Stop what `make cluster-up` started, and remove all of it
	@bin/realcluster down $(NAME)

.PHONY: test-quick
test-quick: ## Run the tests that start no server: those to run after each edit
	$(GO) test -timeout 10m $(TESTFLAGS) $$($(LIGHT))
	@echo "After a change of api/, of deploy/charts or of the help of a command, run: make generate"

.PHONY: fuzz
fuzz: ## Feed each parser of what agents and users send with random input, for FUZZTIME each
	@grep -rlE '^func Fuzz' --include='*_test.go' . | xargs -n1 dirname | sort -u | while read -r folder; do \
		for target in $$(sed -nE 's/^func (Fuzz[A-Za-z0-9]*)\(.*/\1/p' $$folder/*_test.go); do \
			echo "$$folder $$target"; \
			(cd $$folder && $(GO) test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) .) || exit 1; \
		done; \
	done

.PHONY: race-shared
race-shared: ## Run the tests of RACE, packages whose goroutines share state, under the race detector
	CGO_ENABLED=1 $(GO) test -race -timeout 5m $(TESTFLAGS) $(RACE)

.PHONY: race
race: build ## Run all tests but those that link an API server under the race detector, which takes a C compiler
	CGO_ENABLED=1 $(GO) test -race -timeout 30m $(TESTFLAGS) $$($(LIGHT)) ./test/fleetsim

.PHONY: campaign
campaign: build ## Put faults at POINTS writes of the hub's controllers in each step of a fleet's life, 0 for all, which takes hours
	$(GO) test -count=1 -timeout 6h -run '$(CAMPAIGN)' -v ./test/campaign -faults '$(FAULTS)' -points $(POINTS) -seed $(SEED) \
		-point '$(POINT)'

.PHONY: bench
bench: build ## Measure start, memory, CPU and latencies; writes bench.json
	$(MEASURE) -run '$(BENCH)' -out "$(CURDIR)/bench.json"

.PHONY: bench-placement
bench-placement: build ## Measure PLACEMENTS placements created at once; writes bench-placement.json
	$(MEASURE) -run 'TestPlacements$$' -placements '$(PLACEMENTS)' -out "$(CURDIR)/bench-placement.json"

.PHONY: bench-fleet
bench-fleet: build ## Measure a hub with simulated fleets of FLEET clusters; writes bench-fleet.json
	$(MEASURE) -run 'TestFleet$$' -fleet '$(FLEET)' \
		$(if $(filter light,$(AGENTS)),-light) -away '$(AWAY)' -out "$(CURDIR)/bench-fleet.json"

.PHONY: bench-addons
bench-addons: build ## Measure add-ons on simulated fleets of FLEET clusters; writes bench-addons.json
	$(MEASURE) -run 'TestAddOns$$' -fleet '$(FLEET)' -out "$(CURDIR)/bench-addons.json"

.PHONY: bench-proxy
bench-proxy: build ## Measure requests to clusters through the hub, and tunnels of fleets of FLEET clusters; writes bench-proxy.json
	$(MEASURE) -run 'TestProxy$$' -fleet '$(FLEET)' -out "$(CURDIR)/bench-proxy.json"

.PHONY: bench-tunnels
bench-tunnels: ## Measure the tunnels of agents next to those of konnectivity
	cd $(INTEROP) && GOLANG_PROTOBUF_REGISTRATION_CONFLICT=ignore $(GO) test -run '^$$' -bench '/^(direct|capstan|konnectivity)$$/^(request|stream)' -count 3 .
	cd $(INTEROP) && GOLANG_PROTOBUF_REGISTRATION_CONFLICT=ignore $(GO) test -run '^$$' -bench '/^(capstan|konnectivity)$$/^idle' -benchtime 200x .

.PHONY: bench-fleet-works
bench-fleet-works: build ## Measure works in simulated fleets of FLEET clusters; writes bench-fleet-works.json
	$(MEASURE) -run 'TestFleetWorks$$' -fleet '$(FLEET)' -works '$(WORKS)' \
		$(if $(filter light,$(AGENTS)),-light) -out "$(CURDIR)/bench-fleet-works.json"

.PHONY: bench-sets
bench-sets: build ## Measure a ManifestWorkReplicaSet over SETS clusters without agents; writes bench-sets.json
	$(MEASURE) -run 'TestReplicaSet$$' -sets '$(SETS)' -out "$(CURDIR)/bench-sets.json"

.PHONY: bench-report
bench-report: build ## Measure fleets of FLEET clusters at rest and at work; writes docs/benchmarks
	mkdir -p $(RESULTS)
	for size in $$(echo '$(FLEET)' | tr , ' '); do \
		$(MEASURE) -run 'TestFleet$$' -fleet $$size -light -away '$(AWAY)' -out "$(CURDIR)/$(RESULTS)/fleet-$$size.json" || exit 1; \
	done
	$(MEASURE) -run 'TestFleetWorks$$' -fleet 100 -out "$(CURDIR)/$(RESULTS)/works.json"
	$(MEASURE) -run 'TestReplicaSet$$' -sets '$(SETS)' -out "$(CURDIR)/$(RESULTS)/sets.json"
	$(MEASURE) -run 'TestDeliveries$$' -fleet 1000 -out "$(CURDIR)/$(RESULTS)/deliveries.json"
	$(GO) -C tools run ./benchreport -results "$(CURDIR)/$(RESULTS)" -out "$(CURDIR)/docs/benchmarks"

.PHONY: bench-clusters
bench-clusters: build build-clusters test-images ## Measure hub and agent in clusters with real pods, which takes root; writes bench-clusters.json
	bin/realcluster install && CAPSTAN_TEST_CLUSTERS=1 $(MEASURE) -run 'TestClusters$$' \
		-out "$(CURDIR)/bench-clusters.json"

.PHONY: bench-controllers
bench-controllers: build ## Measure the hub's controllers as a process of their own; writes bench-controllers.json
	$(MEASURE) -run 'TestControllers$$' -out "$(CURDIR)/bench-controllers.json"

.PHONY: lint
lint: ## Check the code of all modules with golangci-lint
	GOWORK="$(CURDIR)/tools/lint/go.work" $(GOLANGCI_LINT) run $(LINTFLAGS) ./... $(patsubst %,./%/...,$(MODULES) $(HYPERKUBE))
	cd $(ARGOCD) && GOWORK=off $(GOLANGCI_LINT) run $(LINTFLAGS) ./...
	cd $(INTEROP) && GOWORK=off $(GOLANGCI_LINT) run $(LINTFLAGS) ./...
	$(GO) vet -tags bench ./test/bench

.PHONY: audit
audit: build ## Check the licences of all modules in the programs; writes sbom.json, which lists them
	$(GO) -C tools/audit test -timeout 2m ./...
	$(GO) -C tools/audit run . -out "$(CURDIR)/sbom.json" -modcache "$$($(GO) env GOMODCACHE)" $(addprefix "$(CURDIR)"/bin/,$(PROGRAMS))

.PHONY: vuln
vuln: build ## Look for known vulnerabilities in the programs; VULNDB names another database than vuln.go.dev
	.ci/vuln
