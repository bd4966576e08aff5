package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/fbfkv/fbfkv/server"
	"github.com/fbfkv/fbfkv/store"
)

// serve runs the server until a signal or SHUTDOWN stops it.
func serve(config *server.Config, file string, stderr io.Writer) error {
	log, level, closeLog, err := openLog(config, stderr)
	if err != nil {
		return err
	}
	defer closeLog()
	limitClients(config, log)

	// The port first: it is quickly had or refused, and clients that come
	// during recovery wait instead of being turned away.
	listeners, certificates, err := listen(config, log)
	if err != nil {
		return err
	}
	st, err := openStore(config, log)
	if err != nil {
		closeAll(listeners)
		return err
	}
	s := server.New(server.Options{
		Store:      st,
		Config:     config,
		ConfigFile: file,
		OnChange:   map[string]func(*server.Config) error{"loglevel": setLevel(level)},
		TLS:        certificates,
		Version:    versionNumber(),
		Logger:     log,
	})
	stopOnSignal(s, log)
	reloadOnSignal(certificates, log)
	for _, l := range listeners {
		log.Info("ready for clients", "address", l.Addr().String(), "pid", os.Getpid(), "version", versionNumber())
	}
	err = s.Serve(listeners...)
	if errors.Is(err, server.ErrStopped) {
		err = nil
	}
	return errors.Join(err, closeStore(st, !s.SkipSnapshot(), log))
}

// listen opens the ports that the settings ask for, plain ones first.
func listen(config *server.Config, log *slog.Logger) (all []net.Listener, certificates *server.TLS, err error) {
	if config.TLS.Port != 0 {
		if certificates, err = server.NewTLS(config, log); err != nil {
			return nil, nil, err
		}
	}
	plain, err := server.Listen(config)
	if err != nil {
		return nil, nil, err
	}
	secure, err := server.ListenTLS(config, certificates)
	if err != nil {
		closeAll(plain)
		return nil, nil, err
	}
	return append(plain, secure...), certificates, nil
}

// openStore opens the data directory and says what was found.
func openStore(config *server.Config, log *slog.Logger) (*store.Store, error) {
	options, err := config.StoreOptions()
	if err != nil {
		return nil, err
	}
	options.Logger = log
	st, err := store.Open(options)
	if err != nil {
		return nil, err
	}
	found := st.Stats()
	log.Info("data directory open", "dir", config.Dir, "appendfsync", config.AppendFsync,
		"partitions", found.Partitions, "tables", len(st.Tables()), "keys", found.Recovery.Keys,
		"redone", found.Recovery.Entries, "took", found.Recovery.Took.Round(time.Millisecond))
	for _, problem := range found.Recovery.Problems {
		log.Warn("recovered from damage", "problem", problem)
	}
	return st, nil
}

// closeStore closes the data directory, with a snapshot if one is wanted.
func closeStore(st *store.Store, snapshot bool, log *slog.Logger) error {
	begin := time.Now()
	closeIt := st.Close
	if !snapshot {
		closeIt = st.CloseNow
	}
	if err := closeIt(); err != nil {
		return fmt.Errorf("closing the data directory: %w", err)
	}
	log.Info("stopped", "snapshot", snapshot, "took", time.Since(begin).Round(time.Millisecond))
	return nil
}

// stopOnSignal stops the server on SIGTERM and SIGINT, and the process at once
// on the second of them.
func stopOnSignal(s *server.Server, log *slog.Logger) {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		log.Info("stopping: clients' commands finish, then a snapshot is written", "signal", (<-signals).String())
		s.Stop(false)
		log.Warn("stopping at once; the next start redoes what the snapshot lacks", "signal", (<-signals).String())
		os.Exit(1)
	}()
}

// reloadOnSignal reads the certificates again on SIGHUP. A terminal that is
// closed sends it too and stops nothing, as in Redis.
func reloadOnSignal(certificates *server.TLS, log *slog.Logger) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGHUP)
	go func() {
		for range signals {
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

// reservedFiles is how many file descriptors are kept for the storage engine
// and the rest of the process.
const reservedFiles = 1100

// limitClients lowers maxclients to what the system's limit of open files
// allows, as Redis does.
func limitClients(config *server.Config, log *slog.Logger) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return
	}
	// The runtime has raised the soft limit to the hard one already.
	allowed := max(32, int64(min(limit.Cur, 1<<40))-reservedFiles)
	if int64(config.MaxClients) > allowed {
		log.Warn("maxclients lowered to what the limit of open files allows; raise it with ulimit -n",
			"maxclients", allowed, "asked", config.MaxClients, "open files", limit.Cur)
		config.MaxClients = int(allowed)
	}
}

// closeAll closes listeners.
func closeAll(listeners []net.Listener) {
	for _, l := range listeners {
		l.Close()
	}
}
