# The verbs of daily work. Plain go commands do the same.

.PHONY: build test race bench bench-redis fuzz lint

# How long each fuzz target runs.
FUZZTIME ?= 20s

build:
	go build -o fbfkv ./cmd/fbfkv

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
