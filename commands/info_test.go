package commands

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/fbfkv/fbfkv/commands/observe"
)

// noField are the fields of Redis' INFO that are not ours, by the start of
// their name.
var noField = map[string]string{
	"redis_git_":                "this is another program",
	"redis_build_id":            "this is another program",
	"gcc_version":               "see go_version",
	"atomicvar_api":             "how Redis was compiled",
	"monotonic_clock":           "how Redis was compiled",
	"used_cpu_sys_main_thread":  "there is no main thread",
	"used_cpu_user_main_thread": "there is no main thread",
}

// TestInfoHasRedisFields expects every section and field that Redis 7.2 shows
// (testdata/info-fields.txt, recorded with appendonly yes from 7.0.15, with what
// 7.2.4 added), in Redis' order.
func TestInfoHasRedisFields(t *testing.T) {
	recorded, err := os.ReadFile("testdata/info-fields.txt")
	if err != nil {
		t.Fatal(err)
	}
	srv := &Server{Version: "1.2.3", Info: func() observe.ServerFigures {
		return observe.ServerFigures{Started: time.Now(), Listeners: []string{"name=tcp"}}
	}}
	c := dial(t, newStore(t), srv)
	info := c.send("INFO everything")
	skipped := map[string]bool{}
	rest := info
	for _, name := range strings.Fields(strings.ReplaceAll(string(recorded), "# ", "#_")) {
		name = strings.ReplaceAll(name, "#_", "# ")
		skip := ""
		for prefix := range noField {
			if strings.HasPrefix(name, prefix) {
				skip = prefix
			}
		}
		if skip != "" {
			skipped[skip] = true
			if strings.Contains(info, "\n"+name) {
				t.Errorf("%s is there, although %s", name, noField[skip])
			}
			continue
		}
		_, after, found := strings.Cut(rest, "\n"+name)
		switch {
		case found:
			rest = after
		case strings.Contains(info, "\n"+name):
			t.Errorf("%s is not where Redis has it", name)
		default:
			t.Errorf("INFO lacks %s", name)
		}
	}
	for prefix, reason := range noField {
		if !skipped[prefix] {
			t.Errorf("no field of Redis begins with %s (%s)", prefix, reason)
		}
	}
}

// TestInfoLines: every line is a name and a value.
func TestInfoLines(t *testing.T) {
	c := dial(t, newStore(t), new(Server))
	c.send("INCR k", "nonsense", "GET k", "CTABLE CREATE \"a b:c\" PREFIX p")
	c.send("INCR k")
	info := c.send("INFO everything")
	_, info, _ = strings.Cut(info, "\r\n")
	line := regexp.MustCompile(`^(# [A-Za-z]+|[a-z0-9_|-]+(:.*)|cmdstat_.*|errorstat_[A-Z]+:count=[0-9]+|table_[^:]+:[a-z_]+=.*|)$`)
	seen := map[string]bool{}
	for l := range strings.SplitSeq(strings.TrimSuffix(info, "\r\n"), "\r\n") {
		name, _, _ := strings.Cut(l, ":")
		if !line.MatchString(l) || l != "" && seen[name] {
			t.Errorf("bad line, or a second one: %q", l)
		}
		seen[name] = true
	}
	for _, want := range []string{"errorstat_ERR:count=1\r\n", "latency_percentiles_usec_incr:p50=", ",p99=",
		",p99.9=", "keyspace_hits:1\r\n"} {
		if !strings.Contains(info, want) {
			t.Errorf("INFO lacks %q", want)
		}
	}
	c.say("CONFIG RESETSTAT")
	got := c.send("INFO stats")
	for _, want := range []string{"keyspace_hits:0\r\n", "total_error_replies:0\r\n",
		"operations_applied:0\r\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("after RESETSTAT INFO lacks %q", want)
		}
	}
}

// TestInfoSections: several at once come once each, and unknown ones not at all.
func TestInfoSections(t *testing.T) {
	c := dial(t, newStore(t), new(Server))
	titles := func(say string) string {
		var list []string
		for _, m := range regexp.MustCompile(`(?m)^# (\w+)`).FindAllStringSubmatch(c.send(say), -1) {
			list = append(list, m[1])
		}
		return strings.Join(list, " ")
	}
	const usual = "Server Clients Memory Persistence Stats Replication CPU Modules Errorstats Cluster " +
		"Keyspace Regions FBF"
	const all = "Server Clients Memory Persistence Stats Replication CPU Modules Commandstats Errorstats " +
		"Latencystats Cluster Keyspace Regions FBF"
	for say, want := range map[string]string{
		"INFO": usual, "INFO default": usual, "INFO all": all, "INFO everything": all,
		"INFO EVERYTHING cpu": all,
		"INFO cpu SERVER cpu": "Server CPU", "INFO nonsense": "",
		"INFO latencystats nonsense": "Latencystats",
		"INFO default commandstats":  strings.Replace(usual, "Modules", "Modules Commandstats", 1),
	} {
		if got := titles(say); got != want {
			t.Errorf("%s shows %s", say, got)
		}
	}
}

// TestInfoCountsDenials: each by its kind, and none after CONFIG RESETSTAT.
func TestInfoCountsDenials(t *testing.T) {
	srv := new(Server)
	st := newStore(t)
	admin, c := dial(t, st, srv), dial(t, st, srv)
	admin.play([]step{{"ACL SETUSER b on >p ~a +get +multi +exec +client|info", "+OK"}})
	for _, line := range []string{"AUTH b wrong", "AUTH b p", "SET a 1", "FLUSHALL", "GET b", "MULTI",
		"GET b", "EXEC", "GET a", "CLIENT INFO"} {
		c.say(line)
	}
	denied := func(want ...string) {
		t.Helper()
		info := admin.send("INFO stats")
		for i, kind := range []string{"auth", "cmd", "key", "channel"} {
			if !strings.Contains(info, "acl_access_denied_"+kind+":"+want[i]+"\r\n") {
				t.Errorf("INFO has not %s denials for %s:\n%s", want[i], kind, info)
			}
		}
	}
	denied("1", "2", "2", "0")
	admin.say("CONFIG RESETSTAT")
	denied("0", "0", "0", "0")
}

// TestInfoCountsRounds: a pipeline is one, however many requests it has, and its time is the time
// of its commands.
func TestInfoCountsRounds(t *testing.T) {
	srv := new(Server)
	c := dial(t, newStore(t), srv)
	c.send("INCR a")
	stats := &srv.Observer.Stats
	spent := func() (sum time.Duration) {
		for _, f := range srv.CommandFigures() {
			sum += f.Time
		}
		return sum
	}
	before, took := stats.Rounds()
	beforeTime := spent()
	c.send("INCR a", "INCR b", "GET a", "nosuch")
	after, sum := stats.Rounds()
	if after-before != 1 {
		t.Errorf("a pipeline is %d rounds", after-before)
	}
	if commands, round := spent()-beforeTime, sum-took; commands == 0 || commands > round {
		t.Errorf("the commands took %v of the round's %v", commands, round)
	}
	start := time.Now()
	srv.Observer.Sample(start, 0, 0)
	c.send("INCR a")
	srv.Observer.Sample(start.Add(time.Second), 0, 0)
	info := c.send("INFO stats")
	if !strings.Contains(info, "instantaneous_eventloop_cycles_per_sec:1\r\n") ||
		strings.Contains(info, "eventloop_cycles:0\r\n") {
		t.Error(info)
	}
	c.say("CONFIG RESETSTAT")
	if info := c.send("INFO stats"); !strings.Contains(info, "eventloop_cycles:1\r\n") { // RESETSTAT itself
		t.Error(info)
	}
}
