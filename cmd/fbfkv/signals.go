package main

import (
	"os"
	"os/signal"
	"syscall"

	"github.com/fbfkv/fbfkv/server"
)

// stopOnSignal stops the server on SIGTERM and SIGINT, after another node has taken over,
// and the process at once on the second of them; until the returned func is called.
func stopOnSignal(s *server.Server, handOver func(), log *logging) (end func()) {
	return onSignal(func(n int, sig os.Signal) {
		if n > 1 {
			log.Warn("stopping at once; the next start redoes what the snapshot lacks", "signal",
				sig.String())
			os.Exit(1)
		}
		log.Info("stopping: clients' commands finish, then a snapshot is written", "signal", sig.String())
		go func() {
			handOver()
			s.Stop(false)
		}()
	}, syscall.SIGTERM, syscall.SIGINT)
}

// onSignal calls fn with each of the signals and how many there were, one after the other,
// until the returned func is called.
func onSignal(fn func(n int, sig os.Signal), which ...os.Signal) (end func()) {
	signals, ended := make(chan os.Signal, 2), make(chan struct{})
	signal.Notify(signals, which...)
	go func() {
		for n := 1; ; n++ {
			select {
			case sig := <-signals:
				fn(n, sig)
			case <-ended:
				return
			}
		}
	}()
	return func() {
		signal.Stop(signals)
		close(ended)
	}
}

// reloadOnSignal opens the log file again on SIGHUP, and reads the certificates
// again, of which there may be none; until the returned func is called. A terminal that is closed
// sends SIGHUP too and stops nothing, as in Redis.
func reloadOnSignal(certificates *server.TLS, log *logging) (end func()) {
	return onSignal(func(int, os.Signal) {
		if err := log.out.reopen(); err != nil {
			log.Warn("SIGHUP: logging continues in the old file", "error", err)
		} else {
			log.Info("SIGHUP: log file opened again")
		}
		if certificates == nil {
			return
		}
		if err := certificates.Reload(); err != nil {
			log.Warn("SIGHUP: the server keeps the old TLS certificates", "error", err)
		} else {
			log.Info("SIGHUP: TLS certificates read again")
		}
	}, syscall.SIGHUP)
}
