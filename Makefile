# The verbs of daily work. Plain go commands do the same.

.PHONY: build test race bench bench-redis paper docs fuzz lint pgo

# How long each fuzz target runs.
FUZZTIME ?= 20s

# What servers run, and what is measured: static, stripped, without the builder's
# paths, and optimized by a profile, for which the compiler builds everything anew. A
# plain go build, go run or go install does without the profile. Where there is a C
# compiler it links the C library, and keeps the caches of the storage engine beside
# Go's heap.
build:
	CGO_ENABLED=0 go build -trimpath -pgo=cmd/fbfkv/release.pgo -ldflags "-s -w" -o fbfkv ./cmd/fbfkv

test:
	go test ./...
	go -C tools test ./...
	go -C clients/go test ./...

race:
	go test -race ./...

bench:
	go test -run '^$$' -bench . -benchmem ./fbf/... ./persistence/... ./store/...

# The goals, measured beside a redis-server that is started for it. Flags for
# `bench table` may be given as ARGS="--rows lua --seconds 5".
bench-redis: build
	go -C tools run ./bench table $(ARGS)

# Figures 8, 9, 12 and 13 of the paper again.
paper:
	go -C tools run ./paper --out ../docs/paper

# The profile by which the compiler optimizes the program (go help buildflags, -pgo),
# anew: worth it when hot functions have changed. A minute on a quiet machine.
PGO_PORT ?= 7391
PGO_WEB ?= 7392
PGO_SECONDS ?= 15
pgo: build
	go -C tools build -o ../fbfkv-bench ./bench
	@set -e; export PPROF_TMPDIR=$$(mktemp -d); dir=$$PPROF_TMPDIR; \
	./fbfkv --dir "$$dir/data" --port $(PGO_PORT) --appendfsync everysec --loglevel warning --metrics-addr 127.0.0.1:$(PGO_WEB) --pprof yes & server=$$!; \
	trap 'kill $$server; wait $$server; rm -rf "$$dir" fbfkv-bench' EXIT; \
	until redis-cli -p $(PGO_PORT) PING >/dev/null 2>&1; do sleep 0.1; done; \
	for pipeline in 1 16 64; do \
		./fbfkv-bench 127.0.0.1:$(PGO_PORT) --pipeline $$pipeline --duration $$(($(PGO_SECONDS) + 3))s & load=$$!; \
		go tool pprof -proto -output "$$dir/$$pipeline.pb.gz" "http://127.0.0.1:$(PGO_WEB)/debug/pprof/profile?seconds=$(PGO_SECONDS)"; \
		wait $$load; \
	done; \
	go tool pprof -proto -output cmd/fbfkv/release.pgo "$$dir"/*.pb.gz

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
	go -C tools vet ./...
	go -C clients/go vet ./...
	go -C clients/go/limiter vet ./...
	go test -run 'TestStyle|TestImports' ./integration_test

# The reference pages, from the command table and the settings.
docs:
	go test ./integration_test -run TestReferenceIsFresh -reference.update
