package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/fbfkv/fbfkv/cmd/fbfkv/internal/monitor"
	"github.com/fbfkv/fbfkv/server"
	"github.com/fbfkv/fbfkv/store"
)

// serve runs the server until a signal or SHUTDOWN stops it.
func serve(config *server.Config, file string, stderr io.Writer) error {
	log, err := openLog(config, stderr)
	if err != nil {
		return err
	}
	defer log.out.Close()
	if len(config.NoEffect) > 0 {
		log.Info("these settings of the configuration have no effect here", "settings", strings.Join(config.NoEffect, ", "))
	}
	files := limitClients(config, log.Logger)
	users, err := config.OpenUsers()
	if err != nil {
		return err
	}

	// The ports first: they are quickly had or refused, and clients that come
	// during recovery wait instead of being turned away.
	listeners, certificates, err := listen(config, log.Logger)
	if err != nil {
		return err
	}
	watched, err := startMonitor(config, log.Logger)
	if err != nil {
		closeAll(listeners)
		return err
	}
	if watched != nil {
		defer watched.Close()
	}
	st, err := openStore(config, files.storage, log.Logger)
	if err != nil {
		closeAll(listeners)
		return err
	}
	processors := spareProcessors(st)
	s := server.New(server.Options{
		Store:      st,
		Config:     config,
		ConfigFile: file,
		Users:      users,
		OnChange:   map[string]func(*server.Config) error{"loglevel": log.setLevel, "maxclients": files.check},
		TLS:        certificates,
		Version:    versionNumber(),
		Processors: processors,
		Logger:     log.Logger,
	})
	stopOnSignal(s, log)
	reloadOnSignal(certificates, log)
	if watched != nil {
		watched.Ready(s, st, certificates)
	}
	for _, l := range listeners {
		log.Info("ready for clients", "address", l.Addr().String(), "pid", os.Getpid(), "version", versionNumber())
	}
	tell(daemon.SdNotifyReady, log)
	stopWatchdog := keepWatchdog(st, log)
	stopGiving := giveMemoryBack(func() int64 { return st.TrimMemory() + s.TrimMemory() })

	err = s.Serve(listeners...)
	if errors.Is(err, server.ErrStopped) {
		err = nil
	}
	tell(daemon.SdNotifyStopping, log)
	stopGiving()
	stopWatchdog()
	if watched != nil {
		watched.Stopping()
	}
	return errors.Join(err, closeStore(st, !s.SkipSnapshot(), log.Logger))
}

// startMonitor serves metrics-addr, if there is one.
func startMonitor(config *server.Config, log *slog.Logger) (*monitor.Monitor, error) {
	if config.MetricsAddr == "" {
		return nil, nil
	}
	m, err := monitor.Start(monitor.Options{Addr: config.MetricsAddr, Pprof: config.Pprof,
		Version: versionNumber(), Revision: revision(), Logger: log})
	if err == nil {
		log.Info("metrics are served", "address", m.Addr(), "status_page", "http://"+m.Addr()+"/", "pprof", config.Pprof)
	}
	return m, err
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

// waitForDisk is how many of a server's workers are expected to wait for an fsync at
// a time: one carries it out, and the next group gathers behind it.
const waitForDisk = 2

// spareProcessors lets as many goroutines run as there are processors while others
// wait for fsyncs, and returns how many processors there are. Go takes a processor
// back from a goroutine in a system call only after about as long as an fsync takes;
// so with appendfsync always, as it is at the start, Go is made to count with some more,
// unless GOMAXPROCS says how many it is to be.
func spareProcessors(st *store.Store) int {
	n := runtime.GOMAXPROCS(0)
	if st.Fsync() == store.Always && os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(n + waitForDisk)
	}
	return n
}

// openStore opens the data directory, of which so many files may be open, and says what
// was found.
func openStore(config *server.Config, files int, log *slog.Logger) (*store.Store, error) {
	options, err := config.StoreOptions()
	if err != nil {
		return nil, err
	}
	options.Logger, options.OpenFiles = log, files
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

// closeAll closes listeners.
func closeAll(listeners []net.Listener) {
	for _, l := range listeners {
		l.Close()
	}
}
