package server

import (
	"log/slog"
	"regexp"
	"strings"
	"testing"
)

// stamp is the part of MONITOR's lines that differs from run to run.
var stamp = regexp.MustCompile(`^\+[0-9]{10}\.[0-9]{6} \[0 127\.0\.0\.1:[0-9]+\]`)

// shown reads one line of MONITOR, without its time and client.
func (c *client) shown() string {
	c.t.Helper()
	line := c.reply()
	if !stamp.MatchString(line) {
		c.t.Errorf("MONITOR sent %q", line)
	}
	return stamp.ReplaceAllString(line, "*")
}

// TestMonitor compares what a monitor sees with what Redis would show it.
func TestMonitor(t *testing.T) {
	for _, loop := range loops {
		for _, hello := range []string{"2", "3"} {
			s := startLoop(t, loop, Options{Store: openStore(t), Logger: quiet})
			m, c := s.dial(t), s.dial(t)
			m.do("HELLO", hello)
			m.send(frame("PING") + frame("MONITOR") + frame("PING"))
			m.expectReply("+PONG")
			m.expectReply("+OK")
			m.expectReply("+PONG")
			if got := m.shown(); got != `* "PING"` { // its own
				t.Errorf("it sees %s", got)
			}
			c.send(frame("cincrby", "k", "id\n", "1") + frame("GET") + frame("nonsense") + frame("GET", "k") +
				frame("CINCRBY", "k", "x", "y") +
				frame("MULTI") + frame("INCR", "n") + frame("DBSIZE") + frame("EXEC") +
				frame("AUTH", "secret") +
				frame("CONFIG", "SET", "timeout", "0") + frame("CLIENT", "LIST") +
				frame("HELLO", "2", "AUTH", "default", "x"))
			for _, want := range []string{`"cincrby" "k" "id\n" "1"`, `"GET" "k"`, `"CINCRBY" "k" "x" "y"`,
				`"MULTI"`, `"INCR" "n"`, `"DBSIZE"`, `"EXEC"`,
				`"AUTH" "(redacted)"`, `"HELLO" "2" "AUTH" "(redacted)" "(redacted)"`} {
				if got := m.shown(); got != "* "+want {
					t.Errorf("it sees %s, want %s", got, want)
				}
			}
			m.expect("-ERR Replica can't interact with the keyspace", "GET", "k")
			if list := s.dial(t).do("CLIENT", "LIST"); !strings.Contains(list, "flags=O ") {
				t.Errorf("CLIENT LIST: %s", list)
			}
			m.send(frame("MONITOR")) // no answer: it does already
			m.expect("+RESET", "RESET")
			m.expect("$-1", "GET", "nothing")
			eventually(t, "nobody monitors", func() bool { return !s.Server.commands.Observer.Watched() })
		}
	}
}

// TestMonitorEnds: a monitor that goes away leaves nothing behind, also when
// nobody asks for anything meanwhile.
func TestMonitorEnds(t *testing.T) {
	s := start(t)
	for range 20 {
		m := s.dial(t)
		m.expect("+OK", "MONITOR")
		m.Close()
	}
	eventually(t, "nobody monitors", func() bool { return !s.Server.commands.Observer.Watched() })
}

// TestSlowMonitor: a monitor that does not read is disconnected by its output
// limit, and nobody else waits for it.
func TestSlowMonitor(t *testing.T) {
	s := start(t, "client-output-buffer-limit", "normal 2mb 0 0")
	m, c := s.dial(t), s.dial(t)
	m.expect("+OK", "MONITOR")
	text := strings.Repeat("x", 100_000)
	for range 500 { // 50 MB, far more than the system keeps for a socket
		c.expect(text, "ECHO", text)
	}
	eventually(t, "the monitor is gone", func() bool {
		return len(s.sessions()) == 1 && !s.Server.commands.Observer.Watched()
	})
}

// TestObservationSettings take effect at once.
func TestObservationSettings(t *testing.T) {
	s := start(t)
	c := s.dial(t)
	c.expect("[slowlog-log-slower-than 10000 slowlog-max-len 128]", "CONFIG", "GET", "slowlog*")
	c.expect("[latency-monitor-threshold 0]", "CONFIG", "GET", "latency*")
	c.expect("+OK", "CONFIG", "SET", "slowlog-log-slower-than", "0", "slowlog-max-len", "2")
	c.do("PING")
	c.do("ECHO", "x")
	c.expect(":2", "SLOWLOG", "LEN")
	c.expect("+OK", "CONFIG", "SET", "slowlog-log-slower-than", "-1")
}

// TestSecretSettingsAreNotShown: no setting that is a password, by what the settings say of
// themselves, in CONFIG GET, INFO, the log or SLOWLOG, whether CONFIG SET accepts it or not.
// (MONITOR does not show CONFIG.)
func TestSecretSettingsAreNotShown(t *testing.T) {
	const secret = "a-password-of-more-than-16-bytes"
	var log lockedBuffer
	s := startWith(t, Options{Store: openStore(t), Logger: slog.New(slog.NewJSONHandler(&log, nil))},
		"slowlog-log-slower-than", "0",
		"requirepass", secret, "cluster-secret", secret, "region-password", secret, "tls-key-file-pass",
		secret)
	c := s.dial(t)
	c.expect("+OK", "AUTH", secret)
	found := 0
	for i := range Settings {
		if s := &Settings[i]; s.Syntax() != "<password>" {
			continue
		}
		found++
		name := Settings[i].Name
		c.expect("["+name+" (redacted)]", "CONFIG", "GET", name)
		c.expect("["+name+" (redacted)]", "CONFIG", "GET", strings.ToUpper(name[:4])+"*"+name[5:])
		if set := c.do("CONFIG", "SET", name, secret); set == "+OK" {
			eventually(t, "the act is logged", func() bool {
				return strings.Contains(log.String(), "CONFIG SET "+name+" ")
			})
		}
		if said := c.do("SLOWLOG", "GET", "-1"); strings.Contains(said, secret) ||
			!strings.Contains(said, name+" (redacted)") {
			t.Errorf("SLOWLOG shows %s", said)
		}
		if strings.Contains(log.String(), secret) {
			t.Errorf("the log shows %s", log.String())
		}
	}
	for _, command := range []string{"CONFIG GET *", "INFO everything", "CLIENT LIST", "CLIENT INFO",
		"ACL LOG", "LATENCY LATEST"} {
		if said := c.do(strings.Fields(command)...); strings.Contains(said, secret) {
			t.Errorf("%s shows %s", command, said)
		}
	}
	if found < 4 {
		t.Errorf("%d settings are secret", found)
	}
}
