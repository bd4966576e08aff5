package commands

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fbfkv/fbfkv/commands/observe"
	"github.com/fbfkv/fbfkv/resp"
)

// observing is a server that logs every batch.
func observing(limit int) *Server {
	srv := new(Server)
	srv.Observer.Tune(observe.Tuning{SlowlogSlowerThan: 0, SlowlogMaxLen: limit})
	return srv
}

// logged are the arguments in the slow log, newest first.
func logged(srv *Server) []string {
	var list []string
	var w resp.Writer
	srv.Observer.Slowlog.Write(&w, -1)
	entries, _ := decode(string(w.Bytes()))
	for _, e := range entries.([]any) {
		var words []string
		for _, word := range e.([]any)[3].([]any) {
			words = append(words, word.(string))
		}
		list = append(list, strings.Join(words, " "))
	}
	return list
}

func TestSlowlog(t *testing.T) {
	srv := observing(5)
	c := dial(t, newStore(t), srv)
	c.say("CLIENT SETNAME me")
	c.send("INCR a", "GET a", "MGET a b")
	c.say("SLOWLOG LEN")
	var variable = regexp.MustCompile(`:1[0-9]{9} :[0-9]+ `)
	got := variable.ReplaceAllString(c.say("SLOWLOG GET 2"), "<when> <took> ")
	want := `[[:2 <when> <took> ["SLOWLOG" "LEN"] "127.0.0.1:50000" "me"] ` +
		`[:1 <when> <took> ["INCR" "a" "... (2 more commands of the same batch)"] "127.0.0.1:50000" "me"]]`
	if got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	c.play([]step{
		{"SLOWLOG GET 0", "[]"},
		{"SLOWLOG GET -2", "-ERR count should be greater than or equal to -1"},
		{"SLOWLOG GET x", "-ERR count should be greater than or equal to -1"},
		{"SLOWLOG LEN", ":5"},
	})
	if got := c.say("SLOWLOG GET -1"); strings.Count(got, "127.0.0.1") != 5 ||
		!strings.HasPrefix(got, "[[:7 ") {
		t.Errorf("all: %s", got)
	}
	c.play([]step{{"SLOWLOG RESET", "+OK"}, {"SLOWLOG LEN", ":1"}}) // RESET itself is logged after
	srv.Observer.Tune(observe.Tuning{SlowlogSlowerThan: time.Hour, SlowlogMaxLen: 5})
	c.play([]step{{"SLOWLOG RESET", "+OK"}, {"INCR a", ":2"}, {"SLOWLOG LEN", ":0"}})
	srv.Observer.Tune(observe.Tuning{SlowlogSlowerThan: -1, SlowlogMaxLen: 5})
	c.play([]step{{"INCR a", ":3"}, {"SLOWLOG LEN", ":0"}})
	srv.Observer.Tune(observe.Tuning{SlowlogSlowerThan: 0, SlowlogMaxLen: 0})
	c.play([]step{{"INCR a", ":4"}, {"SLOWLOG LEN", ":0"}})
}

// TestSlowlogOfTransactions: the entry names what was carried out, not MULTI.
func TestSlowlogOfTransactions(t *testing.T) {
	srv := observing(9)
	c := dial(t, newStore(t), srv)
	c.send("MULTI", "INCR a", "INCR b", "EXEC")
	if got := logged(srv); len(got) != 1 || got[0] != "INCR a ... (1 more commands of the same batch)" {
		t.Errorf("%q", got)
	}
	c.send("MULTI", "nonsense", "DISCARD")
	if got := logged(srv); len(got) != 1 {
		t.Errorf("%q", got)
	}
}

// TestSlowlogIsAbridged: as Redis does, and with secrets left out.
func TestSlowlogIsAbridged(t *testing.T) {
	srv := observing(99)
	srv.Users = secured().Users
	srv.ConfigGet = func(p string) [][2]string { return [][2]string{{p, ""}} }
	srv.ConfigSet = func([][2]string) error { return nil }
	c := dial(t, newStore(t), srv)
	long := strings.Repeat("x", 300)
	for _, tt := range []struct{ say, want string }{
		{"AUTH secret", "AUTH (redacted)"},
		{"AUTH default secret", "AUTH (redacted) (redacted)"},
		{"HELLO 2 SETNAME auth AUTH default secret", "HELLO 2 SETNAME auth (redacted) (redacted) (redacted)"},
		{"HELLO 2 AUTH default secret SETNAME me", "HELLO 2 AUTH (redacted) (redacted) SETNAME me"},
		{"CONFIG SET timeout 1 RequirePass secret", "CONFIG SET timeout 1 RequirePass (redacted)"},
		{"CONFIG SET tls-key-file-pass secret", "CONFIG SET tls-key-file-pass (redacted)"},
		{"ECHO " + long, "ECHO " + long[:128] + "... (172 more bytes)"},
		{"ECHO " + long[:128], "ECHO " + long[:128]},
		{"MGET" + numbered(31), "MGET" + numbered(31)},
		{"MGET" + numbered(32), "MGET" + numbered(30) + " ... (2 more arguments)"},
	} {
		c.say(tt.say)
		if got := logged(srv)[0]; got != tt.want {
			t.Errorf("%.60s is logged as %q, want %q", tt.say, got, tt.want)
		}
	}
}

// TestSlowlogOfRenamed: a command keeps its secrets under another name.
func TestSlowlogOfRenamed(t *testing.T) {
	srv := observing(9)
	srv.Users = secured().Users
	table, err := Commands.Rename("auth", "enter")
	if err != nil {
		t.Fatal(err)
	}
	srv.Table = table
	c := dial(t, newStore(t), srv)
	c.say("ENTER secret")
	if got := logged(srv); len(got) != 1 || got[0] != "ENTER (redacted)" {
		t.Errorf("%q", got)
	}
}

// numbered is a list of n keys.
func numbered(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, " k%d", i)
	}
	return b.String()
}

// TestLatencyEvents goes through what LATENCY tells of events.
func TestLatencyEvents(t *testing.T) {
	srv := new(Server)
	c := dial(t, newStore(t), srv)
	c.play([]step{{"LATENCY LATEST", "[]"}, {"LATENCY RESET", ":0"}, {"LATENCY HISTORY x", "[]"},
		{"LATENCY DOCTOR", "-ERR LATENCY DOCTOR is not supported: " + figuresReason}})
	srv.Observer.NoteEvent("snapshot", time.Second) // the monitor is off
	srv.Observer.Tune(observe.Tuning{SlowlogSlowerThan: -1, LatencyThreshold: 10 * time.Millisecond})
	at := time.Now().Truncate(time.Second)
	for i, ms := range []time.Duration{9, 20, 40, 30, 100, 50} {
		srv.Observer.Report(&observe.Batch{Start: at.Add(time.Duration(i/2)*time.Minute - time.Hour),
			Took: ms * time.Millisecond})
	}
	srv.Observer.NoteEvent("snapshot", 30*time.Millisecond)
	srv.Observer.Tune(observe.Tuning{SlowlogSlowerThan: -1}) // what follows may be slow, too
	c.play([]step{
		{"LATENCY HISTORY Command",
			fmt.Sprintf("[[:%d :20] [:%d :40] [:%d :100]]", at.Unix()-3600, at.Unix()-3540, at.Unix()-3480)},
		{"LATENCY HISTORY fsync", "[]"},
	})
	latest := c.say("LATENCY LATEST")
	if !strings.HasPrefix(latest, fmt.Sprintf(`[["command" :%d :100 :100] ["snapshot" :`, at.Unix()-3480)) ||
		!strings.HasSuffix(latest, ":30 :30]]") {
		t.Errorf("latest %s", latest)
	}
	c.play([]step{{"LATENCY RESET nosuch SNAPSHOT", ":1"}, {"LATENCY RESET", ":1"}, {"LATENCY LATEST", "[]"}})
}

// TestLatencyOfCommands: a batch is a fast one if all its commands are.
func TestLatencyOfCommands(t *testing.T) {
	srv := new(Server)
	srv.Observer.Tune(observe.Tuning{SlowlogSlowerThan: -1, LatencyThreshold: 1})
	c := dial(t, newStore(t), srv)
	c.send("INCR a", "GET a")
	if got := c.say("LATENCY LATEST"); !strings.HasPrefix(got, `[["fast-command" `) ||
		strings.Contains(got, `"command"`) {
		t.Errorf("%s", got)
	}
	// the one before was not fast
	if got := c.say("LATENCY LATEST"); !strings.HasPrefix(got, `[["command" `) {
		t.Errorf("%s", got)
	}
}

// TestLatencyHistogram: counts grow and end with all of them.
func TestLatencyHistogram(t *testing.T) {
	srv := new(Server)
	c := dial(t, newStore(t), srv)
	for _, d := range []time.Duration{500, 1000, 1500, 3_000_000, 33_000, 1 << 45} {
		srv.Observer.Stats.Ran(Commands.Get([]byte("get")).index, 2, d, d)
	}
	c.play([]step{
		{"LATENCY HISTOGRAM get nope",
			`["get" ["calls" :12 "histogram_usec" [:1 :4 :2 :6 :4 :6 :8 :6 :16 :6 :33 :6 :66 :8 :131 :8 :262 :8 :524 :8 :1049 :8 ` +
				`:2097 :8 :4194 :10 :8389 :10 :16777 :10 :33554 :10 :67109 :10 :134218 :10 :268435 :10 :536871 :10 :1073742 :10 :2147484 :10 ` +
				`:4294967 :10 :8589935 :10 :17179869 :10 :34359738 :10 :68719477 :10 :137438953 :10 :274877907 :10 :549755814 :10 :1099511628 :12]]]`},
		{"LATENCY HISTOGRAM incr", "[]"},
		{"CLIENT ID", ":7"},
	})
	if got := c.say("LATENCY HISTOGRAM client latency"); !strings.HasPrefix(got,
		`["client|id" ["calls" :1 `) || !strings.Contains(got, `"latency|histogram" ["calls" :2 `) {
		t.Error(got)
	}
	if got := c.say("LATENCY HISTOGRAM"); !strings.Contains(got, `"get" `) ||
		!strings.Contains(got, `"client|id" `) {
		t.Error(got)
	}
}

// TestObservingAllocatesNothing: a batch that is not slow and not watched costs
// no memory.
func TestObservingAllocatesNothing(t *testing.T) {
	p, args := newIdlePipeline(), toArgs([]string{"GET", "k"})
	p.srv.Observer.Tune(observe.Tuning{SlowlogSlowerThan: time.Hour, SlowlogMaxLen: 9,
		LatencyThreshold: time.Hour})
	var w resp.Writer
	start := time.Now()
	work := func() {
		for range 10 {
			parseAndReply(p, args, &w)
		}
		p.round.looked(p.round.slots, start, time.Second)
	}
	work()
	if n := testing.AllocsPerRun(100, work); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestCommandFigures: what is counted is what was sent, in mixed pipelines too.
func TestCommandFigures(t *testing.T) {
	srv := &Server{}
	c := dial(t, newStore(t), srv)
	c.send("INCR a", "GET a", "INCR a", "GET a", "PING", "GET", "CINCRBY a x y", "nonsense",
		"CLIENT NO-EVICT maybe")
	c.send("SET f x", "TYPE a", "TTL a", "EXISTS a", "MGET a", "DECR a", "CGET a", "PTTL a", "PERSIST a",
		"PING")
	want := map[string][3]uint64{ // calls, failed, rejected
		"incr": {2, 0, 0}, "get": {2, 0, 1}, "ping": {2, 0, 0}, "cincrby": {1, 1, 0},
		"client|no-evict": {1, 1, 0},
		"set":             {1, 1, 0}, "persist": {1, 0, 0}, "cget": {1, 0, 0},
	}
	got := srv.CommandFigures()
	for _, f := range got {
		if w, ok := want[f.Name]; ok && w != [3]uint64{f.Calls, f.Failed, f.Rejected} {
			t.Errorf("%s: %d calls, %d failed, %d rejected, want %v", f.Name, f.Calls, f.Failed, f.Rejected,
				w)
		}
		delete(want, f.Name)
		if f.Latency.Count != f.Calls || f.Calls > 0 && (f.Time <= 0 || f.Latency.Sum < f.Time) {
			t.Errorf("%s: %d calls and %d latencies, %v of %v", f.Name, f.Calls, f.Latency.Count, f.Time,
				f.Latency.Sum)
		}
	}
	if len(want) > 0 {
		t.Errorf("missing: %v", want)
	}
	if e := srv.Observer.Stats.ErrorFigures(); len(e) != 1 || e[0].Prefix != "ERR" || e[0].Count != 5 {
		t.Errorf("errors %v", e)
	}
	c.say("SELECT 0")
	c.say("CONFIG RESETSTAT")
	if got := srv.CommandFigures(); len(got) != 1 || got[0].Name != "config|resetstat" ||
		srv.Observer.Stats.ErrorFigures() != nil {
		t.Errorf("after a reset: %d commands", len(got))
	}
}

func TestMemoryCommand(t *testing.T) {
	c := dial(t, newStore(t), &Server{})
	c.send("INCR short", "INCR "+strings.Repeat("long", 100), "FBF.RESERVE f BITS 80000 HASHES 3 REFRESH "+
		"1000 FIXED")
	usage := func(key string) int {
		t.Helper()
		n, err := strconv.Atoi(strings.TrimPrefix(c.say("MEMORY USAGE "+key+" SAMPLES 0"), ":"))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	short, long, filter := usage("short"), usage(strings.Repeat("long", 100)), usage("f")
	if short < 50 || short > 500 || long < short+380 || filter < 2*80000/8 {
		t.Errorf("MEMORY USAGE: %d, %d, %d bytes", short, long, filter)
	}
	c.play([]step{{"MEMORY STATS", "-ERR MEMORY STATS is not supported: " + figuresReason}})
	if got := c.say("MEMORY HELP"); !strings.Contains(got, "+USAGE key [SAMPLES count]") {
		t.Error(got)
	}
}
