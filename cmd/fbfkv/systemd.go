package main

import (
	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/fbfkv/fbfkv/store"
)

// tell tells systemd the state of the service, if it has started the process
// with Type=notify.
func tell(state string, log *logging) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		log.Warn("cannot tell systemd", "state", state, "error", err)
	}
}

// keepWatchdog tells systemd's watchdog, if there is one, that the server is
// well, until the returned func is called. It checks that first: reading the
// figures needs every partition's lock, so a server that hangs is restarted, and
// everything acknowledged is on disk.
func keepWatchdog(st *store.Store, log *logging) (stop func()) {
	interval, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		log.Warn("systemd's watchdog is not served", "error", err)
	}
	if err != nil || interval == 0 {
		return func() {}
	}
	well := func() {
		st.Stats()
		tell(daemon.SdNotifyWatchdog, log)
	}
	well()
	return every(interval/3, well)
}
