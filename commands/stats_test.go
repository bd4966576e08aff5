package commands

import "testing"

// TestCommandFigures: what is counted is what was sent, in mixed pipelines too.
func TestCommandFigures(t *testing.T) {
	srv := &Server{}
	c := dial(t, newStore(t), srv)
	c.send("INCR a", "GET a", "INCR a", "GET a", "PING", "GET", "CINCRBY a x y", "nonsense", "CLIENT NO-TOUCH maybe")
	c.send("SET f x", "TYPE a", "TTL a", "EXISTS a", "MGET a", "DECR a", "CGET a", "PTTL a", "PERSIST a", "PING")
	want := map[string][3]uint64{ // calls, failed, rejected
		"incr": {2, 0, 0}, "get": {2, 0, 1}, "ping": {2, 0, 0}, "cincrby": {1, 1, 0}, "client|no-touch": {1, 1, 0},
		"set": {1, 1, 0}, "persist": {1, 0, 0}, "cget": {1, 0, 0},
	}
	got := srv.CommandFigures()
	for _, f := range got {
		if w, ok := want[f.Name]; ok && w != [3]uint64{f.Calls, f.Failed, f.Rejected} {
			t.Errorf("%s: %d calls, %d failed, %d rejected, want %v", f.Name, f.Calls, f.Failed, f.Rejected, w)
		}
		delete(want, f.Name)
		if f.Latency.Count != f.Calls || f.Calls > 0 && (f.Time <= 0 || f.Latency.Sum < f.Time) {
			t.Errorf("%s: %d calls and %d latencies, %v of %v", f.Name, f.Calls, f.Latency.Count, f.Time, f.Latency.Sum)
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
	if got := srv.CommandFigures(); len(got) != 1 || got[0].Name != "config|resetstat" || srv.Observer.Stats.ErrorFigures() != nil {
		t.Errorf("after a reset: %d commands", len(got))
	}
}
