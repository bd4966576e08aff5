package integration

import (
	"bufio"
	"flag"
	"net"
	"os/exec"
	"path/filepath"
	"testing"
)

var pageScreenshot = flag.String("page.screenshot", "", "take the README's picture of the status page, "+
	"into this file")

// TestPage opens the status page in a browser (clients/node/page.js says what it looks
// for): duplicates move its numbers, it can be read on a phone, in light and in dark, and
// asks nobody but the server.
func TestPage(t *testing.T) {
	t.Parallel()
	requireProgram(t, "chromium", "install Debian's package chromium")
	requireFile(t, "clients/node/node_modules/playwright-core", "run npm ci in integration_test/clients/node")
	chromium, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatal(err)
	}
	monitor := freeAddress(t)
	s := startServer(t, "--metrics-addr", monitor)
	args := append(nodeScript("page.js")(t), chromium, "http://"+monitor+"/", s.address())
	if *pageScreenshot != "" {
		path, err := filepath.Abs(*pageScreenshot)
		if err != nil {
			t.Fatal(err)
		}
		args = append(args, path)
	}
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	said := newLogBuffer()
	cmd.Stderr = said
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		switch lines.Text() {
		case "kill":
			s.kill()
		case "start":
			s.start()
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v: %s", err, said)
	}
}

// freeAddress is one of this machine that nobody listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
