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

// TestStaticBuild runs the build commands of the Dockerfile and of make build, and
// expects programs that need nothing of the system they run on. They build everything
// anew, which takes minutes: that is left to continuous integration.
func TestStaticBuild(t *testing.T) {
	t.Parallel()
	for file, version := range map[string]string{"../packaging/docker/Dockerfile": "7.8.9", "../Makefile": ""} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		m := regexp.MustCompile(`(?m)^(?:RUN |\t)(CGO_ENABLED=0 go build -trimpath .*-ldflags "-s -w.*" -o )(\S+)( \./cmd/fbfkv)$`).FindSubmatch(text)
		if m == nil {
			t.Fatalf("%s: a go build that makes a static program, stripped and without paths, was not found", file)
		}
		if os.Getenv("FBFKV_CI") == "" {
			continue
		}
		built := filepath.Join(t.TempDir(), "fbfkv")
		cmd := exec.Command("sh", "-c", string(m[1])+built+string(m[3]))
		cmd.Dir = ".."
		cmd.Env = append(os.Environ(), "VERSION="+version)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", m[0], err, out)
		}
		f, err := elf.Open(built)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if libraries, err := f.ImportedLibraries(); err != nil || len(libraries) > 0 || f.Section(".interp") != nil {
			t.Errorf("%s: it is not static: %v, %v", file, libraries, err)
		}
		if f.Section(".symtab") != nil || f.Section(".debug_info") != nil || f.Section(".zdebug_info") != nil {
			t.Errorf("%s: it is not stripped", file)
		}
		if out, err := exec.Command(built, "--version").Output(); err != nil || !strings.HasPrefix(string(out), "fbfkv "+version) {
			t.Errorf("%s: --version: %s, %v", file, out, err)
		}
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
