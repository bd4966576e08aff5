package main

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fbfkv/fbfkv/internal/testwait"
	"github.com/fbfkv/fbfkv/resp"
)

// admin sends a command as the default user with a password and returns the reply: a line, or a string.
func (p *process) admin(t *testing.T, password string, words ...string) string {
	t.Helper()
	nc, err := net.Dial("tcp", p.address)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	nc.SetDeadline(time.Now().Add(testwait.Limit))
	var w resp.Writer
	w.BulkStrings([]string{"AUTH", password})
	w.BulkStrings(words)
	if _, err := nc.Write(w.Bytes()); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(nc)
	var line string
	for i := range 2 {
		if line, err = in.ReadString('\n'); err != nil || i == 0 && line != "+OK\r\n" {
			t.Fatalf("%q: %q, %v", words, line, err)
		}
	}
	if strings.HasPrefix(line, "$") {
		n := 0
		fmt.Sscanf(line, "$%d", &n)
		b := make([]byte, max(n, 0))
		for i := range b {
			if b[i], err = in.ReadByte(); err != nil {
				t.Fatal(err)
			}
		}
		return string(b)
	}
	return strings.TrimSpace(line)
}

// TestTwoRegions: two servers become regions, read each other as a user of one permission, go on
// so after a restart. A region whose readers may do everything does not start where others can reach it.
func TestTwoRegions(t *testing.T) {
	tmp := t.TempDir()
	settings := func(name string) []string {
		return []string{"--dir", filepath.Join(tmp, name), "--requirepass", "admin", "--user",
			"region on >peer +region.pull",
			"--region-user", "region", "--region-password", "peer"}
	}
	a, b := launch(t, settings("a")...), launch(t, settings("b")...)
	self := func(p *process, name string) string {
		status := p.admin(t, "admin", "REGION", "STATUS")
		_, own, _ := strings.Cut(status, `"self":`)
		own, _, _ = strings.Cut(own, "}")
		own = strings.Replace(own+"}", `"name":""`, `"name":"`+name+`"`, 1)
		return strings.Replace(own, `"address":""`, `"address":"`+p.address+`"`, 1)
	}
	if got := a.admin(t, "admin", "REGION", "CREATE", "eu", a.address); !strings.HasPrefix(got, "{") {
		t.Fatalf("CREATE: %s", got)
	}
	set := a.admin(t, "admin", "REGION", "ADMIT", self(b, "us"))
	if got := b.admin(t, "admin", "REGION", "JOIN", set); got != "+OK" {
		t.Fatalf("JOIN: %s, with %s", got, set)
	}
	sees := func(p *process, want string) {
		t.Helper()
		for end := time.Now().Add(testwait.Limit); p.admin(t, "admin", "CGET",
			"k") != want; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("shows %s, not %s: %s\n%s", p.admin(t, "admin", "CGET", "k"), want,
					p.admin(t, "admin", "REGION", "STATUS"), p.logged())
			}
		}
	}
	a.admin(t, "admin", "CINCRBY", "k", "op 1", "5")
	for end := time.Now().Add(testwait.Limit); ; time.Sleep(10 * time.Millisecond) { // until it has caught up
		got := b.admin(t, "admin", "CINCRBY", "k", "op 2", "7")
		if strings.HasPrefix(got, ":") {
			break
		}
		if !strings.HasPrefix(got, "-TRYAGAIN") || time.Now().After(end) {
			t.Fatal(got)
		}
	}
	sees(a, ":12")
	sees(b, ":12")

	if err := a.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := a.exitCode(t); code != 0 {
		t.Errorf("exit status %d: %s", code, a.logged())
	}
	b.admin(t, "admin", "CINCRBY", "k", "op 3", "1")

	cmd := command("--dir", filepath.Join(tmp, "a"), "--port", "0", "--bind", "0.0.0.0", "--requirepass",
		"admin")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	cmd.Run()
	lines := strings.Split(strings.TrimSpace(stderr.String()), "\n")
	if last := lines[len(lines)-1]; cmd.ProcessState.ExitCode() != 1 ||
		!strings.HasPrefix(last, "fbfkv: a region with bind 0.0.0.0 must let only other regions read it") ||
		!strings.Contains(last, "'user peer on >PASSWORD +region.pull'") ||
		!strings.Contains(last, "region-user and region-password") {
		t.Errorf("read by whoever may do all: exit status %d, %s", cmd.ProcessState.ExitCode(), &stderr)
	}
	sees(launch(t, append(settings("a"), "--bind", "0.0.0.0")...), ":13")
}
