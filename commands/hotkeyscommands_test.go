package commands

import (
	"strings"
	"testing"
	"time"

	"github.com/fbfkv/fbfkv/store"
)

// TestHotkeys: what is refused, and the reply's fields.
func TestHotkeys(t *testing.T) {
	c := dial(t, newStore(t), new(Server))
	c.play([]step{
		{"HOTKEYS GET", "nil"}, {"HOTKEYS STOP", "nil"}, {"HOTKEYS RESET", "+OK"},
		{"HOTKEYS START", "-ERR METRICS parameter is required"},
		{"HOTKEYS START COUNT 3", "-ERR METRICS parameter is required"},
		{"HOTKEYS START METRICS", "-ERR syntax error"},
		{"HOTKEYS START METRICS 0", "-ERR METRICS count must be > 0 and <= 2"},
		{"HOTKEYS START METRICS 3 CPU NET X", "-ERR METRICS count must be > 0 and <= 2"},
		{"HOTKEYS START METRICS 2 CPU", "-ERR METRICS count does not match number of metric types provided"},
		{"HOTKEYS START METRICS 1 CPU NET", "-ERR syntax error"},
		{"HOTKEYS START METRICS 2 GPU NYET", "-ERR METRICS no valid metrics passed. Supported: CPU|NET"},
		{"HOTKEYS START METRICS 2 CPU cpu", "-ERR METRICS CPU defined more than once!"},
		{"HOTKEYS START METRICS 1 CPU COUNT 0", "-ERR COUNT must be between 1 and 64"},
		{"HOTKEYS START METRICS 1 CPU COUNT 65", "-ERR COUNT must be between 1 and 64"},
		{"HOTKEYS START METRICS 1 CPU COUNT", "-ERR syntax error"},
		{"HOTKEYS START METRICS 1 CPU DURATION 0", "-ERR DURATION must be between 1 and 1000000"},
		{"HOTKEYS START METRICS 1 CPU SAMPLE 0", "-ERR SAMPLE ratio must be positive"},
		{"HOTKEYS START METRICS 1 CPU SLOTS 1 0", "-ERR SLOTS parameter cannot be used in non-cluster mode"},
		{"HOTKEYS START METRICS 2 GPU NET COUNT 3", "+OK"},
		{"HOTKEYS START METRICS 1 CPU", "-ERR hotkey tracking session already in progress"},
		{"HOTKEYS RESET", "-ERR hotkey tracking session in progress, stop tracking first"},
	})
	c.send("SET a 1", "GET a", "MGET a bb", "MULTI", "INCR c", "GET a", "EXEC", "PING", "GET", "INCR a x")
	for _, want := range []string{`"tracking-active" :1`, `"sample-ratio" :1`,
		`"selected-slots" [[:0 :16383]]`} {
		if got := c.say("HOTKEYS GET"); !strings.HasPrefix(got, "[[") || !strings.Contains(got, want) {
			t.Errorf("%s, want %s", got, want)
		}
	}
	c.play([]step{{"HOTKEYS STOP", "+OK"}, {"HOTKEYS STOP", "nil"}})
	c.send("SET a 123456789012345678")
	got := c.say("HOTKEYS GET")
	// SET a 1: 27 + 5, GET a twice: 20 + 7 each, MGET a bb: 29 + 16 for both, INCR c: 21 + 4.
	if want := `"by-net-bytes" ["a" :108 "c" :25 "bb" :22]]]`; !strings.HasSuffix(got, want) {
		t.Errorf("%s, want %s", got, want)
	}
	for _, absent := range []string{"cpu", "selected-slots-us", "sampled"} {
		if strings.Contains(got, absent) {
			t.Errorf("%s has %s", got, absent)
		}
	}
	c.play([]step{{"HOTKEYS RESET", "+OK"}, {"HOTKEYS GET", "nil"}})
}

// TestHotkeysTime: operations of a batch share the time that it took until it waited for the disk, by the
// number of their arguments.
func TestHotkeysTime(t *testing.T) {
	st := newStore(t)
	srv := &Server{}
	var waits time.Time
	srv.Execute = func(b *store.Batch) {
		time.Sleep(20 * time.Millisecond)
		if b.OnBlock != nil {
			b.OnBlock()
			waits = time.Now()
			time.Sleep(20 * time.Millisecond)
			b.OnBlock()
		}
		st.Execute(b)
	}
	c := dial(t, st, srv)
	blocked := 0
	c.p.round.OnBlock(func() { blocked++ })
	c.say("HOTKEYS START METRICS 2 CPU NET")
	began := time.Now()
	c.send("SET a 1", "MGET b c d e f")
	r := srv.hotkeys.Last().Report(time.Now(), srv.used())
	if blocked == 0 || c.p.round.batch.OnBlock == nil {
		t.Errorf("the round was told %d times that it waits", blocked)
	}
	// A share may lose a nanosecond to rounding.
	if most := waits.Sub(began); r.All.Time < 20*time.Millisecond-10 || r.All.Time > most {
		t.Errorf("all took %v of %v", r.All.Time, most)
	}
	sums := map[string]time.Duration{}
	for _, h := range r.ByTime {
		sums[h.Key] = time.Duration(h.Sum)
	}
	if a, b := sums["a"], sums["b"]; len(sums) != 6 || b == 0 || a/b != 2 || sums["f"] != b {
		t.Errorf("times %v", sums)
	}
}

// TestHotkeysSlots: in a cluster a search can be of some slots of the node's own.
func TestHotkeysSlots(t *testing.T) {
	srv := &Server{Cluster: &newIsland(twoShards()).Cluster}
	c := dial(t, newStore(t), srv)
	start := "HOTKEYS START METRICS 1 NET SLOTS "
	c.play([]step{
		{start + "2 0", "-ERR not enough slot numbers provided"},
		{start + "0", "-ERR SLOTS count must be between 1 and 16384"},
		{start + "2 0 0", "-ERR duplicate slot number"},
		{start + "1 16384", "-ERR Invalid or out of range slot"},
		{start + "1 -1", "-ERR Invalid or out of range slot"},
		{start + "1 8192", "-ERR slot 8192 not handled by this node"},
		{start + "1 0 SLOTS 1 1", "-ERR SLOTS parameter already specified"},
		{"HOTKEYS START METRICS 1 CPU", "+OK"}, {"HOTKEYS STOP", "+OK"},
	})
	if got := c.say("HOTKEYS GET"); !strings.Contains(got, `"selected-slots" [[:0 :8190] [:8191]]`) {
		t.Error(got)
	}
	c.play([]step{{start + "4 5061 7 6 5 SAMPLE 1", "+OK"}})
	c.send("INCR "+here, "INCR "+alsoHere, "MGET "+here+" "+here+"x")
	got := c.say("HOTKEYS GET")
	for _, want := range []string{`"selected-slots" [[:5 :7] [:5061]]`, `"all-commands-selected-slots-us" :`,
		`"by-net-bytes" ["{bar}" :`} {
		if !strings.Contains(got, want) || strings.Contains(got, `"aa"`) {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
