package server

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

// writeFiles writes files into a new directory, where the test then is.
func writeFiles(t *testing.T, files map[string]string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	t.Chdir(dir)
	for name, text := range files {
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestDirectives holds the table to its own rules.
func TestDirectives(t *testing.T) {
	seen := map[string]bool{}
	for _, d := range Directives {
		name := strings.TrimSuffix(d.Name, "*")
		if seen[d.Name] || name != strings.ToLower(name) || foreign(strings.ToUpper(name)).Name != d.Name {
			t.Errorf("%s: the name is not lower case and unique", d.Name)
		}
		if seen[d.Name] = true; LookUp(d.Name) != nil || strings.EqualFold(name, "include") {
			t.Errorf("%s is a setting", d.Name)
		}
		if d.Reason == "" || !d.Refused && d.Unless != nil {
			t.Errorf("%s: %+v", d.Name, d)
		}
	}
}

// TestFaultsAreToldAtOnce reads directives of Redis' between mistakes.
func TestFaultsAreToldAtOnce(t *testing.T) {
	text := `tcp-backlog 511
SAVE 3600 1 300 100 60 10000
enable-debug-command no
enable-debug-command YES
maxmemory 0
maxmemory 1gb
replicaof no one
slaveof 10.0.0.1 6379
masterauth secret
masteruser ""
cf-bucket-size 2
timeout soon
databases 16
appendonly no
client-output-buffer-limit normal 0 0 0
client-output-buffer-limit replica 256mb 64mb 60
client-output-buffer-limit pubsub 32mb 8mb 60
port 1
tls-ciphers DEFAULT:!MEDIUM
tls-ciphers DEFAULT
tls-ciphers RC4-SHA
acllog-max-len 1
latency-tracking no
auto-aof-rewrite-min-size 64mb
tcp-backlog 511
port 2
`
	c := DefaultConfig()
	var faults Faults
	if !errors.As(readConfig(strings.NewReader(text), "conf", c), &faults) {
		t.Fatal("accepted")
	}
	for i, want := range []string{"conf:4: enable-debug-command: ", "conf:6: maxmemory: ",
		"conf:8: slaveof: ", "conf:9: masterauth: ",
		"conf:12: timeout: ", "conf:21: tls-ciphers: "} {
		if i >= len(faults) || !strings.HasPrefix(faults[i], want) || strings.Contains(faults[i], "secret") {
			t.Fatalf("%q, want %q next", faults[min(i, len(faults)):], want)
		}
	}
	want := DefaultConfig()
	want.Save, want.Port, want.MaxOutput = SavePoints{{3600, 1}, {300, 100}, {60, 10000}}, 2, OutputLimit{}
	want.NoEffect = []string{"tcp-backlog", "enable-debug-command", "maxmemory", "replicaof", "masteruser",
		"cf-bucket-size", "databases 16",
		"appendonly no", "client-output-buffer-limit replica", "client-output-buffer-limit pubsub", "tls-ciphers",
		"acllog-max-len", "latency-tracking", "auto-aof-rewrite-min-size", "port (conf:18, set again below)"}
	if len(faults) != 6 || !reflect.DeepEqual(c, want) {
		t.Errorf("%d faults\n got %+v\nwant %+v", len(faults), c, want)
	}
}

// TestFaultsAreBounded reads what is no configuration at all.
func TestFaultsAreBounded(t *testing.T) {
	err := readConfig(strings.NewReader(strings.Repeat("nonsense\n", 1e5)), "conf", DefaultConfig())
	var faults Faults
	if errors.As(err, &faults); len(faults) != maxFaults+1 ||
		!strings.HasSuffix(faults[maxFaults], ":100: too many faults: the rest of the file was not read") {
		t.Errorf("%d faults, the last %q", len(faults), faults[len(faults)-1])
	}
}

func TestInclude(t *testing.T) {
	dir := writeFiles(t, map[string]string{
		"main.conf": "timeout 1\nmaxclients 1\nsave 900 1\ninclude part.conf\nmaxclients 3\ninclude " +
			"conf.d/[!x]*.conf\ninclude nothing/*\n",
		"part.conf":         "timeout 2\nmaxclients 2\nsave 60 5\n",
		"conf.d/b.conf":     "port 2\nINCLUDE 'conf.d/with space'\n",
		"conf.d/a.conf":     "port 1\nslowlog-max-len 1\n",
		"conf.d/with space": "slowlog-max-len 7\n",
		"conf.d/.hidden":    "nonsense\n", "conf.d/.c.conf": "nonsense\n", "conf.d/x.conf": "nonsense\n",
		"conf.d/c.conf.old": "nonsense\n",
	})
	for _, path := range []string{"main.conf", filepath.Join(dir, "main.conf")} {
		c, want := DefaultConfig(), DefaultConfig()
		if err := ReadConfigFile(path, c); err != nil {
			t.Fatal(err)
		}
		want.Timeout, want.MaxClients, want.Save = 2*time.Second, 3, SavePoints{{900, 1}, {60, 5}}
		want.Port, want.Observation.SlowlogMaxLen = 2, 7
		if !reflect.DeepEqual(c, want) {
			t.Errorf("%s: got %+v\nwant %+v", path, c, want)
		}
	}
}

// TestIncludeFaults tells the faults of included files at their own places, and
// comes to an end.
func TestIncludeFaults(t *testing.T) {
	var many strings.Builder
	for range maxIncludes + 1 {
		many.WriteString("include good\n")
	}
	writeFiles(t, map[string]string{
		"main": "include bad\nports 3\ninclude dir\n", "bad": "timeout 1\ntimeout x\n", "dir/f": "",
		"good": "timeout 1\n",
		"self": "include ./self\n", "a": "include b\n", "b": "include a\n", "many": many.String(),
		"tree/f": "include tree/*\ninclude tree/*\n",
	})
	if err := os.Symlink("f", "tree/g"); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"main": "bad:2: timeout: argument couldn't be parsed into an integer\nmain:2: unknown setting " +
			"\"ports\", did you mean port?\n" +
			"dir:1: read dir: is a directory",
		"self":   "self:1: include: ./self includes itself",
		"a":      "b:1: include: a includes itself",
		"many":   fmt.Sprintf("many:%d: include: more than %d files", maxIncludes+1, maxIncludes),
		"tree/f": "tree/f:1: include: tree/f includes itself\ntree/f:2: include: tree/f includes itself",
	} {
		if err := ReadConfigFile(path, DefaultConfig()); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", path, err, want)
		}
	}
	// A tree of links is bounded by the number of files.
	for i := range 20 {
		if err := os.WriteFile(fmt.Sprintf("level%d", i), fmt.Appendf(nil, "include level%d\ninclude "+
			"level%d\n", i+1, i+1), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var faults Faults
	if errors.As(ReadConfigFile("level0", DefaultConfig()), &faults); len(faults) == 0 ||
		len(faults) > maxFaults+1 {
		t.Errorf("%d faults of 2^20 includes", len(faults))
	}
}

// TestRewriteWithIncludes writes what an include would hide below it, and not what
// an include says.
func TestRewriteWithIncludes(t *testing.T) {
	writeFiles(t, map[string]string{"part": "timeout 5\nmaxclients 9\nsave 60 1\n"})
	const old = "timeout 1\ntcp-backlog 511\ninclude part\nport 1\nport 2\n" +
		"client-output-buffer-limit normal 2mb 0 0\nclient-output-buffer-limit pubsub 1mb 0 0\n"
	for _, tt := range []struct {
		set  [2]string
		want string
	}{
		{[2]string{"maxclients", "9"}, old},
		{[2]string{"timeout", "7"}, strings.Replace(old, "timeout 1", "timeout 7", 1) + rewriteMark +
			"\ntimeout 7\n"},
		{[2]string{"maxclients", "10000"}, old + rewriteMark + "\nmaxclients 10000\n"},
		{[2]string{"client-output-buffer-limit", "normal 3mb 0 0"},
			strings.Replace(old, "2mb 0 0", "3145728 0 0", 1)},
		{[2]string{"save", "7 7"}, ""},
	} {
		c := DefaultConfig()
		if err := readConfig(strings.NewReader(old), "conf", c); err != nil {
			t.Fatal(err)
		}
		if err := LookUp(tt.set[0]).Set(c, tt.set[1]); err != nil {
			t.Fatal(err)
		}
		got, err := rewritten(old, "conf", c)
		if got != tt.want || (err == nil) != (tt.want != "") {
			t.Errorf("%v: %v\n got %q\nwant %q", tt.set, err, got, tt.want)
		}
	}
}

// TestCheck finds all that a start would fail on at once.
func TestCheck(t *testing.T) {
	dir := writeFiles(t, map[string]string{"users": "user alice on nopass +@all\n", "log": ""})
	c := DefaultConfig()
	c.LogFile = filepath.Join(dir, "new log")
	if faults := c.Check(); faults != nil {
		t.Errorf("the defaults: %v", faults)
	}
	if _, err := os.Stat(c.LogFile); err == nil {
		t.Error("a check made a log file")
	}
	c.LogFile, c.ACLFile = filepath.Join(dir, "log"), filepath.Join(dir, "users")
	if faults := c.Check(); faults != nil {
		t.Errorf("good files: %v", faults)
	}
	c.Port, c.TLS.Port, c.TLS.CertFile, c.TLS.KeyFile = 7, 7, filepath.Join(dir, "no.crt"),
		filepath.Join(dir, "no.key")
	c.ACLFile, c.LogFile = filepath.Join(dir, "nobody"), filepath.Join(dir, "no", "log")
	want := []string{"aclfile: open ", "port and tls-port are both 7", "tls-cert-file: open ",
		"logfile: open "}
	faults := c.Check()
	if len(faults) != len(want) {
		t.Fatalf("%q", faults)
	}
	for i, f := range faults {
		if !strings.HasPrefix(f, want[i]) {
			t.Errorf("%q, want %q", f, want[i])
		}
	}
}
