package integration

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestDockerfileBuild runs the Dockerfile's build command and expects a program
// that needs nothing of the system it runs on. It builds everything anew, which
// takes minutes: that is left to continuous integration.
func TestDockerfileBuild(t *testing.T) {
	t.Parallel()
	if os.Getenv("FBFKV_CI") == "" {
		t.Skip("set FBFKV_CI to build the program as the Dockerfile does")
	}
	text, err := os.ReadFile("../packaging/docker/Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^RUN (CGO_ENABLED=0 go build .* -o /out/fbfkv \S+)$`).FindSubmatch(text)
	if m == nil {
		t.Fatal("the Dockerfile's go build was not found")
	}
	built := filepath.Join(t.TempDir(), "fbfkv")
	cmd := exec.Command("sh", "-c", strings.Replace(string(m[1]), "/out/fbfkv", built, 1))
	cmd.Dir = ".."
	cmd.Env = append(os.Environ(), "VERSION=7.8.9")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", m[1], err, out)
	}
	f, err := elf.Open(built)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if libraries, err := f.ImportedLibraries(); err != nil || len(libraries) > 0 || f.Section(".interp") != nil {
		t.Errorf("it is not static: %v, %v", libraries, err)
	}
	if out, err := exec.Command(built, "--version").Output(); err != nil || !strings.HasPrefix(string(out), "fbfkv 7.8.9 ") {
		t.Errorf("--version: %s, %v", out, err)
	}
}

// TestPackagedSettings starts the program as the packages do.
func TestPackagedSettings(t *testing.T) {
	t.Parallel()
	unit, err := os.ReadFile("../packaging/systemd/fbfkv.service")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"ExecStart=/usr/bin/fbfkv /etc/fbfkv/fbfkv.conf --dir /var/lib/fbfkv\n", "Type=notify\n"} {
		if !strings.Contains(string(unit), want) {
			t.Errorf("the unit lacks %q", want)
		}
	}
	for _, file := range []string{"../packaging/systemd/fbfkv.conf", "../packaging/docker/fbfkv.conf"} {
		s := &server{t: t, dir: t.TempDir(), args: []string{file, "--metrics-addr", "127.0.0.1:0", "--log-format", "text",
			"--requirepass", "", "--bind", "127.0.0.1"}}
		s.start()
		s.dial().want("+PONG", "PING")
		s.stop()
	}
}
