package main

import (
	"os"
	"os/signal"
	"syscall"

	"github.com/fbfkv/fbfkv/server"
)

// stopOnSignal stops the server on SIGTERM and SIGINT, and the process at once
// on the second of them.
func stopOnSignal(s *server.Server, log *logging) {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		log.Info("stopping: clients' commands finish, then a snapshot is written", "signal", (<-signals).String())
		s.Stop(false)
		log.Warn("stopping at once; the next start redoes what the snapshot lacks", "signal", (<-signals).String())
		os.Exit(1)
	}()
}

// reloadOnSignal opens the log file again on SIGHUP, and reads the certificates
// again, of which there may be none. A terminal that is closed sends SIGHUP too
// and stops nothing, as in Redis.
func reloadOnSignal(certificates *server.TLS, log *logging) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGHUP)
	go func() {
		for range signals {
			if err := log.out.reopen(); err != nil {
				log.Warn("SIGHUP: the log goes on in the old file", "error", err)
			} else {
				log.Info("SIGHUP: log file opened again")
			}
			if certificates == nil {
				continue
			}
			if err := certificates.Reload(); err != nil {
				log.Warn("SIGHUP: the TLS certificates in use stay", "error", err)
			} else {
				log.Info("SIGHUP: TLS certificates read again")
			}
		}
	}()
}
