package server

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

// TestSettingsTable holds every declaration to its own rules: the default is
// valid, and what a setting writes it reads back.
func TestSettingsTable(t *testing.T) {
	seen := map[string]bool{}
	for i := range Settings {
		s := &Settings[i]
		if s.Name != strings.ToLower(s.Name) || seen[s.Name] || LookUp(strings.ToUpper(s.Name)) != s {
			t.Errorf("%s: name is not lower case and unique", s.Name)
		}
		seen[s.Name] = true
		if s.Group == "" || s.Syntax() == "" || !strings.HasSuffix(s.Doc, ".") {
			t.Errorf("%s: group %q, syntax %q, doc %q", s.Name, s.Group, s.Syntax(), s.Doc)
		}
		c := DefaultConfig()
		if err := readConfig(strings.NewReader(s.Line(c)), "conf", c); err != nil {
			t.Errorf("%s: its own line %q is refused: %v", s.Name, s.Line(c), err)
		}
		if !reflect.DeepEqual(c, DefaultConfig()) {
			t.Errorf("%s: reading %q gives another value", s.Name, s.Line(c))
		}
	}
}

// TestSettingsFieldsAreDistinct sets one setting at a time and expects that no
// other changes, so that no two share a field.
func TestSettingsFieldsAreDistinct(t *testing.T) {
	other := map[string]string{
		"dir": "x", "backup-dir": "b", "appendfsync": "no", "save": "5 1", "filter-maxmemory": "2mb",
		"maxmemory-clients": "3mb", "hot-counters": "2000",
		"cache-memory": "2mb", "min-free-disk": "7", "follow-backlog": "7mb", "partitions": "8", "accept-forgotten-window": "yes",
		"bind": "::1", "port": "1", "protected-mode": "no", "requirepass": "pw", "tcp-keepalive": "7",
		"timeout": "7", "maxclients": "7", "proto-max-bulk-len": "2mb",
		"client-query-buffer-limit": "2mb",
		"metrics-addr":              "127.0.0.1:7", "pprof": "yes", "log-format": "json",
		"tls-port": "7", "tls-cert-file": "c", "tls-key-file": "k", "tls-key-file-pass": "p",
		"tls-ca-cert-file": "a",
		"tls-ca-cert-dir":  "d", "tls-cluster-ca-cert-file": "n", "tls-auth-clients": "optional",
		"tls-protocols":           "TLSv1.3",
		"slowlog-log-slower-than": "7", "slowlog-max-len": "7", "latency-monitor-threshold": "7",
		"client-output-buffer-limit": "normal 2mb 0 0", "loglevel": "debug", "logfile": "x",
		"shutdown-timeout": "7",
		"user":             "alice on", "aclfile": "x",
		"rename-command":  "get got",
		"cluster-enabled": "yes", "cluster-port": "7", "cluster-node-timeout": "500",
		"cluster-secret": "0123456789abcdef", "tls-cluster": "yes",
		"cluster-announce-ip": "::1", "cluster-announce-hostname": "a.b", "cluster-announce-port": "7",
		"cluster-announce-tls-port": "7",
		"cluster-announce-bus-port": "7", "cluster-preferred-endpoint-type": "hostname",
		"cluster-replica-max-stale": "7",
		"region-backlog":            "7mb", "region-retention": "2h", "region-user": "u",
		"region-retention-policy": "refuse", "region-password": "p", "region-announce": "a:7",
		"tls-region": "yes", "tls-region-check-names": "no",
		"bf-error-rate": "0.2", "bf-initial-size": "7", "bf-expansion-factor": "7", "module-list-bf": "yes",
	}
	for i := range Settings {
		s := &Settings[i]
		if s.Fixed {
			continue
		}
		c := DefaultConfig()
		if err := s.Set(c, other[s.Name]); err != nil {
			t.Errorf("%s: %v", s.Name, err)
		}
		for j := range Settings {
			changed := Settings[j].Format(c) != Settings[j].Format(DefaultConfig())
			if changed != (i == j) {
				t.Errorf("setting %s: %s changed: %v", s.Name, Settings[j].Name, changed)
			}
		}
	}
}

func TestSettingValues(t *testing.T) {
	tests := []struct {
		name, value string
		want        string // as CONFIG GET shows it, or
		err         string // part of the error
	}{
		{"port", "6380", "6380", ""},
		{"port", "65536", "", "argument must be between 0 and 65535 inclusive"},
		{"port", "-1", "", "argument must be between 0 and 65535 inclusive"},
		{"port", "http", "", "argument couldn't be parsed into an integer"},
		{"port", "", "", "argument couldn't be parsed into an integer"},
		{"maxclients", "0", "", "argument must be between 1"},
		{"appendfsync", "EVERYSEC", "everysec", ""},
		{"appendfsync", "sometimes", "", "argument(s) must be one of the following: always, everysec, no"},
		{"protected-mode", "No", "no", ""},
		{"protected-mode", "0", "", "argument must be 'yes' or 'no'"},
		{"proto-max-bulk-len", "2mb", "2097152", ""},
		{"proto-max-bulk-len", "2MB", "2097152", ""},
		{"proto-max-bulk-len", "2m", "2000000", ""},
		{"proto-max-bulk-len", "2097152b", "2097152", ""},
		{"proto-max-bulk-len", "1024", "", "argument must be between"},
		{"proto-max-bulk-len", "9223372036854775807gb", "", "argument must be a memory value"},
		{"proto-max-bulk-len", "mb", "", "argument must be a memory value"},
		{"proto-max-bulk-len", "-2mb", "", "argument must be a memory value"},
		{"proto-max-bulk-len", "1.5gb", "", "argument must be a memory value"},
		{"partitions", "32", "32", ""},
		{"partitions", "12", "", "power of two"},
		{"dir", "", "", "must not be empty"},
		{"appendonly", "no", "yes", ""},
		{"appendonly", "perhaps", "", "argument must be 'yes' or 'no'"},
		{"databases", "16", "1", ""},
		{"databases", "0", "", "between 1 and"},
		{"bind", "127.0.0.1 -::1", "127.0.0.1 -::1", ""},
		{"bind", "", "", "at least one address"},
		{"requirepass", "with space", "with space", ""},
		{"requirepass", strings.Repeat("x", 513), "", "longer than 512"},
		{"save", "", "", ""},
		{"save", "900 1 300 10", "900 1 300 10", ""},
		{"save", "900", "", "pairs of seconds and changes"},
		{"save", "0 1", "", "seconds: argument must be between 1"},
		{"save", "60 -1", "", "changes: argument must be between 0"},
		{"client-output-buffer-limit", "normal 2mb 0 0", "normal 2097152 0 0", ""},
		{"client-output-buffer-limit", "normal 0 0 0", "normal 0 0 0", ""},
		{"client-output-buffer-limit", "normal 2mb 1mb 60", "normal 2097152 1048576 60", ""},
		{"client-output-buffer-limit", "normal 2mb 1mb soon", "", "soft seconds: argument couldn't"},
		{"client-output-buffer-limit", "normal 100 0 0", "", "at least 1mb"},
		{"client-output-buffer-limit", "pubsub 32mb 8mb 60", "normal 268435456 0 0", ""},
		{"client-output-buffer-limit", "normal 2mb 0 0 slave 1 1 1 Replica 0 0 0 pubsub 1 2 3",
			"normal 2097152 0 0", ""},
		{"client-output-buffer-limit", "normal 0 0 0 replica", "", "expected, once or more"},
		{"client-output-buffer-limit", "pubsub x 0 0", "", "hard limit: argument must be a memory value"},
		{"client-output-buffer-limit", "master 1mb 0 0", "", `"master" is not a class of clients`},
		{"client-output-buffer-limit", "", "", "expected, once or more"},
		{"timeout", "3600", "3600", ""},
		{"timeout", "5m", "300", ""},
		{"timeout", "1H", "3600", ""},
		{"timeout", "1000ms", "1", ""},
		{"timeout", "500ms", "", "argument must be a multiple of 1s"},
		{"timeout", "1000000d", "", "argument couldn't be parsed"},
		{"timeout", "68y", "", "argument couldn't be parsed"},
		{"timeout", "30000d", "", "argument must be between 0 and 2147483647 inclusive"},
		{"timeout", "99999999999", "", "argument must be between 0 and 2147483647 inclusive"},
		{"slowlog-log-slower-than", "10ms", "10000", ""},
		{"slowlog-log-slower-than", "-1", "-1", ""},
		{"latency-monitor-threshold", "1s", "1000", ""},
		{"filter-maxmemory", "1gb", "1073741824", ""},
		{"filter-maxmemory", "1m", "1000000", ""},
		{"save", "1h 1 300 100 60 10000", "3600 1 300 100 60 10000", ""},
		{"client-output-buffer-limit", "normal 2mb 1mb 1m", "normal 2097152 1048576 60", ""},
		{"metrics-addr", "127.0.0.1", "", "must be host:port"},
		{"metrics-addr", ":http", "", "must be host:port"},
		{"metrics-addr", ":9379", ":9379", ""},
		{"tls-protocols", "", "TLSv1.2 TLSv1.3", ""},
		{"tls-protocols", "tlsv1.3", "TLSv1.3", ""},
		{"tls-protocols", "TLSv1.1 TLSv1.2", "", "TLSv1.1 is broken and not supported"},
		{"tls-protocols", "TLSv1.4", "", "is not a version"},
		{"tls-auth-clients", "maybe", "", "must be one of the following: yes, no, optional"},
	}
	for _, tt := range tests {
		c := DefaultConfig()
		s := LookUp(tt.name)
		err := s.Set(c, tt.value)
		switch {
		case tt.err == "" && (err != nil || s.Format(c) != tt.want):
			t.Errorf("%s %q: %q, %v, want %q", tt.name, tt.value, s.Format(c), err, tt.want)
		case tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)):
			t.Errorf("%s %q: %v, want an error with %q", tt.name, tt.value, err, tt.err)
		case tt.err != "" && !reflect.DeepEqual(c, DefaultConfig()):
			t.Errorf("%s %q: refused, and yet something changed", tt.name, tt.value)
		}
	}
}

func TestSaveInterval(t *testing.T) {
	for value, want := range map[string]time.Duration{
		"": 0, "60 1": time.Minute, "3600 1 300 100 60 10000": time.Minute,
	} {
		c := DefaultConfig()
		if err := LookUp("save").Set(c, value); err != nil || c.Save.Interval() != want {
			t.Errorf("save %q: %v, %v", value, c.Save.Interval(), err)
		}
	}
}

func TestReadConfig(t *testing.T) {
	c := DefaultConfig()
	file := `# a comment
  # another one

port 6380
  BIND 127.0.0.1   ::1
requirepass "a \"b\" \x41 #c"
dir '/var/lib/with space'
save 300 1
save 60 1000
appendfsync everysec
`
	if err := readConfig(strings.NewReader(file), "conf", c); err != nil {
		t.Fatal(err)
	}
	want := DefaultConfig()
	want.Port, want.Bind, want.RequirePass = 6380, []string{"127.0.0.1", "::1"}, `a "b" A #c`
	want.Dir, want.AppendFsync = "/var/lib/with space", "everysec"
	want.Save = SavePoints{{300, 1}, {60, 1000}}
	if !reflect.DeepEqual(c, want) {
		t.Errorf("got %+v\nwant %+v", c, want)
	}
}

func TestReadConfigSaveStartsAfresh(t *testing.T) {
	for file, want := range map[string]string{
		"save \"\"\n":                          "",
		"save 60 1\nsave \"\"\n":               "",
		"save 60 1\nsave \"\"\nsave 900 1\n":   "900 1",
		"save \"\"\nsave 900 1\nsave 300 10\n": "900 1 300 10",
	} {
		c := DefaultConfig()
		err := readConfig(strings.NewReader(file), "conf", c)
		if got := LookUp("save").Format(c); err != nil || got != want {
			t.Errorf("%q: %q, %v, want %q", file, got, err, want)
		}
	}
}

// TestReadConfigErrors has a good line before and after each bad one; they count.
func TestReadConfigErrors(t *testing.T) {
	for line, fault := range map[string]string{
		"prot 1":                  `unknown setting "prot", did you mean port?`,
		"maxmemmory 1gb":          `unknown setting "maxmemmory", did you mean maxmemory?`,
		"nonsense 1":              `unknown setting "nonsense"`,
		"port x":                  "port: argument couldn't be parsed into an integer",
		"port":                    "port: a value is missing",
		"port 1 2":                "port: wrong number of arguments",
		"dir \"a":                 "unbalanced quotes",
		"save 60":                 "save: expected pairs of seconds and changes, such as 60 1",
		"replicaof 10.0.0.1 6379": "replicaof: " + noReplication,
		"RequirePass":             "requirepass: a value is missing",
		"tcp-backlog":             "tcp-backlog: a value is missing",
		"include":                 "include: a value is missing",
		"include a b":             "include: wrong number of arguments",
		"include /no/such/file":   "include: open /no/such/file: no such file or directory",
		"include [":               "include: syntax error in pattern",
		strings.Repeat("x", 1e5):  "the line is longer than 65536 bytes; the rest of the file was not read",
	} {
		c, want := DefaultConfig(), DefaultConfig()
		err := readConfig(strings.NewReader("timeout 7\n"+line+"\nmaxclients 8\n"), "conf", c)
		if err == nil || err.Error() != "conf:2: "+fault {
			t.Errorf("%.30q: %v, want %s", line, err, fault)
		}
		if want.Timeout = 7 * time.Second; len(line) < maxConfigLine {
			want.MaxClients = 8
		}
		if !reflect.DeepEqual(c, want) {
			t.Errorf("%.30q: the other lines do not count, or it does: %+v", line, c)
		}
	}
	if err := ReadConfigFile("/does/not/exist", DefaultConfig()); err == nil ||
		strings.Contains(err.Error(), "\n") {
		t.Errorf("missing file: %v", err)
	}
}

// hashOf is a password as CONFIG REWRITE writes it.
func hashOf(password string) string { return fmt.Sprintf("\"#%x\"", sha256.Sum256([]byte(password))) }

func TestRewriteConfigFile(t *testing.T) {
	for _, tt := range []struct {
		name, old string
		set       [][2]string
		want      string
	}{
		{"nothing changed", "# mine\n\nPORT  6380\nsave 300 1\nsave 60 2", nil,
			"# mine\n\nPORT  6380\nsave 300 1\nsave 60 2\n"},
		{"changed in place", "port 1 \n# timeout\ntimeout 5\ndir x\n", [][2]string{{"timeout", "6"}},
			"port 1 \n# timeout\ntimeout 6\ndir x\n"},
		{"back to the default", "timeout 5\n", [][2]string{{"timeout", "0"}}, "timeout 0\n"},
		{"added", "port 1\n",
			[][2]string{{"requirepass", `a "b"`}, {"maxclients", "10000"}, {"timeout", "7"}},
			"port 1\n" + rewriteMark + "\ntimeout 7\nrequirepass \"a \\\"b\\\"\"\n"},
		{"users unchanged", "user a on >secret ~x\n# here\nuser b off >s2 (+get)\n",
			[][2]string{{"timeout", "7"}},
			"user a on " + hashOf("secret") + " ~x resetchannels -@all\n# here\nuser b off " + hashOf("s2") +
				" resetchannels -@all (resetchannels -@all +get)\n" + rewriteMark + "\ntimeout 7\n"},
		{"added again", rewriteMark + "\ntimeout 7\n", [][2]string{{"maxclients", "9"}},
			rewriteMark + "\ntimeout 7\nmaxclients 9\n"},
		{"a byte order mark", "\ufeffuser a on >secret\r\ntimeout 5\r\n", [][2]string{{"timeout", "7"}},
			"user a on " + hashOf("secret") + " resetchannels -@all\ntimeout 7\n"},
		{"several lines become one", "save 300 1\nport 1\nsave 60 2\n", [][2]string{{"save", "5 5 6 6"}},
			"save 5 5 6 6\nport 1\n"},
		{"a list becomes empty", "save 300 1\n", [][2]string{{"save", ""}}, "save \"\"\n"},
	} {
		path := filepath.Join(t.TempDir(), "conf")
		if err := os.WriteFile(path, []byte(tt.old), 0o640); err != nil {
			t.Fatal(err)
		}
		c := DefaultConfig()
		if err := ReadConfigFile(path, c); err != nil {
			t.Fatal(err)
		}
		for _, p := range tt.set {
			if err := LookUp(p[0]).Set(c, p[1]); err != nil {
				t.Fatal(err)
			}
		}
		err := RewriteConfigFile(path, c)
		text, _ := os.ReadFile(path)
		info, _ := os.Stat(path)
		if err != nil || string(text) != tt.want || info.Mode().Perm() != 0o640 {
			t.Errorf("%s: %v, mode %v\n got %q\nwant %q", tt.name, err, info.Mode(), text, tt.want)
		}
		again := DefaultConfig()
		if err := ReadConfigFile(path, again); err != nil || !reflect.DeepEqual(again, c) {
			t.Errorf("%s: read back %+v, %v", tt.name, again, err)
		}
		if entries, _ := os.ReadDir(filepath.Dir(path)); len(entries) != 1 {
			t.Errorf("%s: %v left in the directory", tt.name, entries)
		}
	}
	if err := RewriteConfigFile("/no/such/file", DefaultConfig()); err == nil {
		t.Error("a file that does not exist was rewritten")
	}
}

// FuzzQuoteWord holds that a quoted word is read back as it was.
func FuzzQuoteWord(f *testing.F) {
	for _, w := range []string{"", "plain", "#no comment", `a "b" 'c' \`, "\x00\xff\r\n\t", "-x"} {
		f.Add(w)
	}
	f.Fuzz(func(t *testing.T, w string) {
		words, ok := splitWords(quoteWord(w))
		if !ok || len(words) != 1 || words[0] != w {
			t.Errorf("%q written as %s, read as %q, %v", w, quoteWord(w), words, ok)
		}
	})
}
