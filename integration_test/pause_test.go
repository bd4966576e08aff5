package integration

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

// pauseUntilGivenUp stops the server as SIGSTOP does: connections stay, and nothing
// answers. It goes on once a client has closed a connection that was open when the
// server fell silent, and has opened another, as one does that does not wait for ever.
func (s *server) pauseUntilGivenUp(t *testing.T) {
	t.Helper()
	if runtime.GOOS != "linux" {
		return // there is no /proc/net/tcp
	}
	if err := s.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer s.cmd.Process.Signal(syscall.SIGCONT)
	silent := map[string]bool{}
	eventually(t, patience, "the client gives up a silent connection, and connects again", func() bool {
		open, closed, isNew := s.clientPorts(t), false, false
		for port := range silent {
			closed = closed || !open[port]
		}
		for port := range open {
			isNew = isNew || len(silent) > 0 && !silent[port]
		}
		if len(silent) == 0 {
			silent = open
		}
		return closed && isNew
	})
}

// clientPorts are the ports of those that are connected to the server, as they see it.
func (s *server) clientPorts(t *testing.T) map[string]bool {
	t.Helper()
	table, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		t.Fatal(err)
	}
	const established = "01"
	server := fmt.Sprintf(":%04X", number(":"+s.port()))
	ports := map[string]bool{}
	for line := range strings.Lines(string(table)) {
		if f := strings.Fields(line); len(f) > 3 && f[3] == established && strings.HasSuffix(f[2], server) {
			ports[f[1]] = true
		}
	}
	return ports
}
