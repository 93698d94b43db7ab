# The targets and their variables: make help

PORT    ?= 30000
PREFILL ?= 1
DECODE  ?= 1
ENGINE  ?= llama
MODEL   ?=
ARGS    ?=

FUZZTIME    ?= 10s
STATICCHECK ?= go run honnef.co/go/tools/cmd/staticcheck@v0.8.2
# -p 1: two packages with clocks in them disturb each other on a small machine.
# -count=1: the suites that run processes build them, and the test cache does not see that.
TESTFLAGS   ?= -p 1 -count=1 -timeout 20m
PKG         ?= ./...

COMMIT = $(shell git rev-parse --short=12 HEAD 2>/dev/null)
# The race detector needs a C compiler; Go turns cgo off where it finds none.
RACE = $(shell [ "$$(go env CGO_ENABLED)" = 1 ] && echo -race)

.DEFAULT_GOAL := help
.PHONY: help up deps build test lint fuzz explore mutate demo-cascade bench-e2e bench-mixed bench-abort soak gauntlet clean

help: ## Show this
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

up: build ## Serve on this machine until Ctrl-C: MODEL= ENGINE=llama|sim PREFILL=1 DECODE=1 PORT=30000 ARGS='-- …'
	@exec ./bin/tandem up --engine '$(ENGINE)' --prefill '$(PREFILL)' --decode '$(DECODE)' --port '$(PORT)' \
		$(if $(MODEL),--model '$(MODEL)') $(ARGS)

deps: ## Install what is missing (libffi), through this machine's own package client
	@scripts/deps.sh

build: deps ## Build ./bin/tandem
	go build -trimpath -ldflags '-X main.commit=$(COMMIT)' -o bin/tandem ./cmd/tandem

# The library is fetched before the tests and not in them, so that a test that needs
# it fails for one reason only.
test: build ## Run every test, with the race detector if there is a C compiler: PKG=./...
	@./bin/tandem lib >/dev/null
	TANDEM_REQUIRE_LLAMA=1 go test $(RACE) $(TESTFLAGS) $(PKG)

lint: ## gofmt, go vet (this platform and macOS), staticcheck
	@bad=$$(git ls-files -co --exclude-standard -- '*.go' | xargs gofmt -l); \
		if [ -n "$$bad" ]; then echo "not formatted (run gofmt -w):"; echo "$$bad"; exit 1; fi
	go vet ./...
	GOOS=darwin GOARCH=arm64 go vet ./...
	$(STATICCHECK) ./...

fuzz: build ## Run every fuzz target for FUZZTIME=10s
	@./bin/tandem lib >/dev/null
	@TANDEM_REQUIRE_LLAMA=1 FUZZTIME='$(FUZZTIME)' scripts/fuzz.sh

explore: ## Try to break the room protocol by every history of a small world, and write docs/proof.md: MINUTES=10 DEPTH=all
	@ulimit -v 12000000; EXPLORE_MINUTES='$(or $(MINUTES),10)' EXPLORE_DEPTH='$(DEPTH)' \
		go test ./internal/room -count=1 -run EveryScope -v -timeout 0

mutate: ## Take every action, transition and guard of the room protocol out in turn; the tests must notice: writes docs/proof.md
	@ulimit -v 12000000; TANDEM_MUTATION=1 go test ./internal/room -count=1 -run EveryMutant -v -timeout 60m

gauntlet: build ## Every fault, abort, crash and crowd that the process tests know, in full, with a table at the end: RUN=Gauntlet
	@./bin/tandem lib >/dev/null
	@RUN='$(RUN)' scripts/gauntlet.sh

demo-cascade: build ## Kill 60 streams of a running `make up` at once, and look at every gauge: URL= STREAMS=60 ROUNDS=3
	@go run ./bench/cascade --url '$(or $(URL),http://127.0.0.1:$(PORT))' --streams '$(or $(STREAMS),60)' --rounds '$(or $(ROUNDS),3)'

bench-engine: build ## Against llama.cpp's own server, in interleaved pairs: LLAMA_SERVER=/path MODEL= PAIRS=20 STREAMS=1,8,32 THREADS=1 CPUS=0,1 ONLY=decode,prefill,mixed,chat ROUNDS=5 ARGS=
	@go build -o bin/bench-engine ./bench/engine
	@exec ./bin/bench-engine --tandem ./bin/tandem --llama-server '$(LLAMA_SERVER)' --model '$(or $(MODEL),gemma3-270m)' --pairs '$(or $(PAIRS),20)' \
		--rounds '$(or $(ROUNDS),5)' --threads '$(or $(THREADS),1)' --cpus '$(CPUS)' --only '$(ONLY)' $(if $(STREAMS),--streams '$(STREAMS)') $(ARGS)

bench-e2e: build ## TTFT, ITL and the uncovered tail of a pair against tandem serve: MODEL= PAIRS=20 TOKENS=2000 THREADS=1 CPUS=0,1
	@go build -o bin/bench-e2e ./bench/e2e
	@exec ./bin/bench-e2e --tandem ./bin/tandem --model '$(or $(MODEL),gemma3-270m)' --pairs '$(or $(PAIRS),20)' --tokens '$(or $(TOKENS),2000)' \
		--threads '$(or $(THREADS),1)' --cpus '$(CPUS)' $(ARGS)

bench-mixed: build ## Gaps between tokens of running streams while 2,000-token prompts arrive: serve with 2 threads against a pair with 1 + 1: MODEL= ROUNDS=3
	@go build -o bin/bench-engine ./bench/engine
	@exec ./bin/bench-engine --tandem ./bin/tandem --llama-server none --only mixed --model '$(or $(MODEL),gemma3-270m)' --rounds '$(or $(ROUNDS),3)' --cpus '$(CPUS)' $(ARGS)

bench-abort: build ## What a mass disconnect and a death cost: storms of 60, 1,000 and 10,000, throughput before and after, the protocol's cost: MODEL=sim ABORT_ARGS=
	@go run ./bench/abort --tandem ./bin/tandem --model '$(or $(MODEL),sim)' $(ABORT_ARGS)

soak: build ## All exactness cases, then hours at 80 % load with a fault a minute: FOR=1h SOAK_ENGINE=sim SEED=1 OUT=bin/soak.json
	TANDEM_SOAK=1 TANDEM_REQUIRE_LLAMA=1 go test ./internal/engine/llama -count=1 -timeout 60m
	@go run ./bench/soak --tandem ./bin/tandem --engine '$(or $(SOAK_ENGINE),sim)' --for '$(or $(FOR),1h)' --seed '$(or $(SEED),1)' --json '$(or $(OUT),bin/soak.json)'

clean: ## Remove what was built; caches of models and libraries stay
	rm -rf bin
