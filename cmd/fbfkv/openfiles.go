package main

import (
	"fmt"
	"log/slog"
	"math"
	"runtime"

	"github.com/fbfkv/fbfkv/persistence"
	"github.com/fbfkv/fbfkv/server"
)

// fileBudget divides the descriptors that the system grants the process. What the
// process itself and the data directory need at least comes first, then as many
// clients as maxclients says, and what these leave is the data directory's, which
// divides it further (persistence/options.go).
type fileBudget struct {
	clients int // how many there may be, whatever maxclients says
	storage int // persistence.Options.OpenFiles
}

// leastClients is how many clients are served whatever the limit is.
const leastClients = 32

// ownFiles is how many descriptors the process needs beside clients and data: standard
// streams, the log, listeners, those who ask for metrics, and the event loops.
func ownFiles() int { return 64 + 4*runtime.GOMAXPROCS(0) }

// divideFiles divides limit descriptors; the settings ask for maxClients.
func divideFiles(limit, own, maxClients int) fileBudget {
	most := max(limit-own-persistence.MinOpenFiles, leastClients)
	left := limit - own - min(max(maxClients, leastClients), most)
	storage := min(max(left, persistence.MinOpenFiles), persistence.MaxOpenFiles)
	return fileBudget{clients: max(limit-own-storage, leastClients), storage: storage}
}

// limitClients lowers maxclients to what the limit of open files allows, as Redis does,
// and says so once.
func limitClients(config *server.Config, log *slog.Logger) fileBudget {
	limit := math.MaxInt32
	if n, known := openFiles(); known { // the runtime has raised the soft limit to the hard one
		limit = int(min(n, math.MaxInt32))
	}
	b := divideFiles(limit, ownFiles(), config.MaxClients)
	if config.MaxClients > b.clients {
		log.Warn("maxclients lowered to what the limit of open files allows; raise it with ulimit -n",
			"maxclients", b.clients, "asked", config.MaxClients, "open_files", limit, "kept_for_data",
			b.storage)
		config.MaxClients = b.clients
	}
	return b
}

// check refuses more clients than the limit of open files allows.
func (b fileBudget) check(config *server.Config) error {
	if config.MaxClients > b.clients {
		return fmt.Errorf("there are file descriptors for %d clients; a start with a larger maxclients or "+
			"ulimit -n may give more", b.clients)
	}
	return nil
}
