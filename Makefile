# The verbs of daily work. Plain go commands do the same.

.PHONY: build test race bench bench-redis bench-docs filters-doc docs fuzz lint pgo

# How long each fuzz target runs.
FUZZTIME ?= 20s

# What servers run, and what is measured: static, stripped, without the builder's
# paths. A plain go build links the C library, where there is a C compiler, and then
# keeps the caches of the storage engine beside Go's heap.
build:
	CGO_ENABLED=0 go build -trimpath -ldflags "-s -w" -o fbfkv ./cmd/fbfkv

test:
	go test ./...

race:
	go test -race ./...

bench:
	go test -run '^$$' -bench . -benchmem ./fbf/... ./persistence/... ./store/...

# The goals, measured beside a redis-server that is started for it. Flags for
# `fbfkv bench table` may be given as ARGS="--rows lua --seconds 5".
bench-redis: build
	./fbfkv bench table $(ARGS)

# Measures package fbf beside others and writes the tables and the plot of docs/FILTERS.md:
# ten minutes on a quiet machine with two processors and 4 GB to spare.
filters-doc:
	cd fbf/compare && bench="go run ./cmd/filterbench" && \
	$$bench speed -rounds 9 -target 1e-6 && \
	$$bench speed -rounds 9 -target 1e-3,1e-9 -size 524288,4194304,67108864 -append && \
	$$bench bits -target 1e-3,1e-6,1e-9 && \
	$$bench fpp -target 1e-3,1e-6,1e-9 -probes 100000000 && \
	$$bench report -doc ../../docs/FILTERS.md

# The figures of docs/PERFORMANCE.md anew: the tables in it and the plots beside it, in
# about 50 minutes on two processors, longer while others disturb. What fails does not stop the rest. With BENCH_SECONDS=0.2
# and the like it is a quick trial; TABLE and SWEEP hold more flags of the two commands.
BENCH_SECONDS ?= 1.2
BENCH_ROUNDS ?= 5
bench-docs: build
	@status=0; \
	./fbfkv bench table --all --seconds $(BENCH_SECONDS) --rounds $(BENCH_ROUNDS) --counters 1e7 --profile 2 --into docs/PERFORMANCE.md \
		--plot docs/performance/goals-profile.svg $(TABLE) || status=1; \
	./fbfkv bench sweep --seconds $(BENCH_SECONDS) --profile 2 --out docs/performance --into docs/PERFORMANCE.md $(SWEEP) || status=1; \
	exit $$status

# The profile by which the compiler optimizes the program (go help buildflags, -pgo),
# anew: worth it when hot functions have changed. Three minutes on a quiet machine.
pgo: build
	profiles=$$(mktemp -d) && trap 'rm -rf "$$profiles"' EXIT && \
	./fbfkv bench sweep --only steps,pipeline --seconds 1 --profile 6 --keep-profiles --out "$$profiles" && \
	go tool pprof -proto -output cmd/fbfkv/default.pgo "$$profiles"/*.pb.gz

fuzz:
	@for package in $$(go list ./...); do \
		for target in $$(go test -list '^Fuzz' $$package | grep '^Fuzz'); do \
			echo "$$package $$target"; \
			go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) $$package || exit 1; \
		done; \
	done

lint:
	@unformatted=$$(gofmt -l .); test -z "$$unformatted" || { echo "gofmt: $$unformatted"; exit 1; }
	go vet ./...
	go test -run 'TestStyle|TestImports' ./integration_test

# The reference pages, from the command table and the settings.
docs:
	go run ./cmd/fbfkv docs commands > docs/COMMANDS.md
	go run ./cmd/fbfkv docs settings > docs/SETTINGS.md
