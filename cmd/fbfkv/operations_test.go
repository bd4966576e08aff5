package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fbfkv/fbfkv/internal/testwait"
)

// await waits until a file holds a text, and returns all of it.
func await(t *testing.T, path, text string) string {
	t.Helper()
	for deadline := time.Now().Add(testwait.Limit); ; time.Sleep(5 * time.Millisecond) {
		b, _ := os.ReadFile(path)
		if strings.Contains(string(b), text) {
			return string(b)
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s lacks %q:\n%s", path, text, b)
		}
	}
}

// TestLogFile moves the log file away, as logrotate does, and sends SIGHUP. What
// is logged is JSON.
func TestLogFile(t *testing.T) {
	dir := t.TempDir()
	path, moved := filepath.Join(dir, "log"), filepath.Join(dir, "log.1")
	cmd := command("--port", "0", "--dir", filepath.Join(dir, "data"), "--logfile", path, "--log-format",
		"json")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	await(t, path, "ready for clients")
	if err := os.Rename(path, moved); err != nil {
		t.Fatal(err)
	}
	cmd.Process.Signal(syscall.SIGHUP)
	await(t, path, "log file opened again")
	cmd.Process.Signal(syscall.SIGTERM)
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	second := await(t, path, "stopped")
	first, _ := os.ReadFile(moved)
	if strings.Contains(string(first), "opened again") || strings.Contains(string(first), "stopped") {
		t.Errorf("the old file has grown: %s", first)
	}
	for line := range strings.Lines(string(first) + second) {
		var message struct{ Time, Level, Msg string }
		err := json.Unmarshal([]byte(line), &message)
		if strings.Contains(message.Msg, "disk") {
			continue // it may be slow, or full
		}
		if err != nil || message.Level != "notice" || message.Msg == "" {
			t.Errorf("%s: %+v, %v", line, message, err)
		}
	}
}

// TestSystemd is systemd's end of the notify socket.
func TestSystemd(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "notify")
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	next := func() string {
		c.SetReadDeadline(time.Now().Add(testwait.Limit))
		b := make([]byte, 1000)
		n, err := c.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		return string(b[:n])
	}
	cmd := command("--port", "0", "--dir", filepath.Join(t.TempDir(), "data"))
	cmd.Env = append(cmd.Env, "NOTIFY_SOCKET="+socket, "WATCHDOG_USEC=300000")
	begin := time.Now()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	if got := next(); got != "READY=1" {
		t.Fatalf("the first message is %q", got)
	}
	for i := range 4 {
		if got := next(); got != "WATCHDOG=1" {
			t.Errorf("message %d is %q", i, got)
		}
	}
	if took := time.Since(begin); took < 300*time.Millisecond {
		t.Errorf("four signs of life within %v of the start, want the first at once and then one in 100 ms",
			took)
	}
	cmd.Process.Signal(syscall.SIGTERM)
	got := next()
	for got == "WATCHDOG=1" {
		got = next()
	}
	if got != "STOPPING=1" {
		t.Errorf("the last message is %q", got)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// TestMetrics asks a running server for its figures and its health, also with
// the subcommand.
func TestMetrics(t *testing.T) {
	p := launch(t, "--dir", filepath.Join(t.TempDir(), "data"), "--metrics-addr", "127.0.0.1:0")
	address := regexp.MustCompile(`msg="metrics are served" address=(\S+)`).FindStringSubmatch(p.logged())
	if address == nil {
		t.Fatal(p.logged())
	}
	p.ask(t, "CINCRBY k op 1")
	r, err := http.Get("http://" + address[1] + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(r.Body)
	r.Body.Close()
	if err != nil || !strings.Contains(string(text), `fbfkv_commands_total{command="cincrby"} 1`) {
		t.Errorf("/metrics: %v\n%s", err, text)
	}
	url := "http://" + address[1] + "/readyz"
	if out, err := command("healthcheck", "--timeout", "1m", "--url", url).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("healthcheck of a server that is ready: %v %s", err, out)
	}
	p.Process.Signal(syscall.SIGTERM)
	p.exitCode(t)
	out, err := command("healthcheck", "--timeout", "1m", "--url", url).CombinedOutput()
	if err == nil || !strings.HasPrefix(string(out), "fbfkv: not ready: ") ||
		strings.Count(string(out), "\n") != 1 {
		t.Errorf("healthcheck of a server that is gone: %v %s", err, out)
	}
	out, err = command("--port", "0", "--dir", t.TempDir(), "--metrics-addr", "192.0.2.1:1").CombinedOutput()
	if want := "cannot listen on metrics-addr 192.0.2.1:1: this machine has no such address"; err == nil ||
		!strings.Contains(string(out), want) {
		t.Errorf("a bad metrics-addr: %v %s", err, out)
	}
}

func TestHealthcheckSaysWhy(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "the data directory is being opened", http.StatusServiceUnavailable)
	})}
	go s.Serve(l)
	defer s.Close()
	out, err := command("healthcheck", "--timeout", "1m", "--url",
		fmt.Sprintf("http://%s/readyz", l.Addr())).CombinedOutput()
	if want := "fbfkv: not ready: the data directory is being opened\n"; err == nil || string(out) != want {
		t.Errorf("%v %q, want %q", err, out, want)
	}
}
