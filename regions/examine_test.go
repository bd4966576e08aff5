package regions

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/store"
)

// putBack puts the directory of the first region back from a copy, and lets it write so far that no number
// shows it. The other one has read more of it, and is paused.
func putBack(t *testing.T, all []*region) {
	t.Helper()
	count(t, "w", all...)
	well(t, all...)
	at, old := all[0].server.address(), vfs.NewMem()
	all[0].listen = func() (net.Listener, error) { return net.Listen("tcp", at) }
	all[0].close()
	if ok, err := vfs.Clone(all[0].fs, old, "data", "data"); !ok || err != nil {
		t.Fatal(ok, err)
	}
	all[0].open()
	all[0].openNode(nil)
	all[1].node.Mesh().Resume(0)
	count(t, "x", all...)
	well(t, all...)
	all[1].node.Mesh().Pause(0)
	all[0].close()
	all[0].fs = old
	all[0].open()
	for i := range 50 { // so far that no number shows it
		must(t, all[0].once(fmt.Sprint("z", i), "a", 1).Err)
	}
}

// TestWentBack: a region whose directory was put back from a copy asks the others when it starts,
// and is fenced by their proof. status says of it what it says of a directory that was restored, at
// once.
func TestWentBack(t *testing.T) {
	all := joined(t, 2, 2)
	putBack(t, all)
	n := all[0].openNode(func(o *Options) { o.sure = false })
	eventually(t, "it is fenced", func() bool {
		st := n.Status()
		return st.Restored && len(st.Ills) == 1 && errors.Is(all[0].once("k", "a", 1).Err, store.ErrRestored)
	})
	all[1].node.Mesh().Resume(0)
	eventually(t, "the other one is refused", func() bool {
		p := all[1].node.Status().Peers
		return len(p) == 1 && p[0].Failing && strings.Contains(p[0].LastError, "r0 has gone back in time")
	})
}

// TestAsksFirst: a region that starts writes nothing, for clients or of others, until all others were asked;
// if it is an older copy, it never does. Two that start at once do not wait for each other.
func TestAsksFirst(t *testing.T) {
	all := joined(t, 2, 2)
	count(t, "w", all...)
	well(t, all...)
	old := vfs.NewMem()
	for _, r := range all {
		at := r.server.address()
		r.listen, r.ask = func() (net.Listener, error) { return net.Listen("tcp", at) }, time.Hour
		r.close()
	}
	if ok, err := vfs.Clone(all[0].fs, old, "data", "data"); !ok || err != nil {
		t.Fatal(ok, err)
	}
	write := func(r *region, id string) chan error {
		done := make(chan error, 1)
		go func() { done <- r.once("k", id, 1).Err }()
		return done
	}
	all[0].open()
	all[0].openNode(func(o *Options) { o.sure = false })
	first := write(all[0], "a")
	select {
	case err := <-first:
		t.Fatal("it writes before the other one has answered:", err)
	default:
	}
	all[1].open()
	all[1].openNode(func(o *Options) { o.sure = false })
	must(t, <-write(all[1], "b"))
	must(t, <-first)
	count(t, "x", all...)
	well(t, all...)
	all[0].close()
	all[0].fs = old
	all[0].open()
	wrote := write(all[0], "c")
	all[0].openNode(func(o *Options) { o.sure = false })
	if err := <-wrote; !errors.Is(err, store.ErrRestored) {
		t.Errorf("an older copy writes: %v", err)
	}
}

// TestPullIsCompared: an older copy that could ask nobody is not read by a region that has read more,
// although it has gone further since, and hears by that what it is.
func TestPullIsCompared(t *testing.T) {
	all := joined(t, 1, 1)
	putBack(t, all)
	all[0].openNode(nil)
	all[1].node.Mesh().Resume(0)
	eventually(t, "it is fenced", func() bool { return all[0].node.Status().Restored })
	for i := range 50 {
		if n := all[1].value(fmt.Sprint("z", i)); n != 0 {
			t.Errorf("the other one has read z%d: %d", i, n)
		}
	}
}

// TestNumberIsNoEvidence: a request that names an entry which the region has not got makes it ask
// the others, not more often than it should, and changes nothing: they have nothing to prove it.
func TestNumberIsNoEvidence(t *testing.T) {
	all := newServers(t, 2, 2)
	n := all[0].openNode(func(o *Options) { o.doubtPeriod = 0 }) // the default
	_, err := n.Create("r0", all[0].server.address())
	must(t, err)
	all[1].openNode(nil)
	all[1].join("r1", n)
	count(t, "x", all...)
	well(t, all...)
	known := n.Admission("", "").Incarnation
	var asked atomic.Int64
	all[1].server.change.Store(new(func(args [][]byte, reply []byte) []byte {
		if isWord(args, wordPositions) {
			asked.Add(1)
		}
		return reply
	}))
	k := &talker{t: t, s: &n.Source}
	set, _ := n.Members()
	for range 100 {
		q := behindAll(t, all[0])
		q.Ranges[1].After += 9
		q.Group, q.Incarnation = set.Group, known
		k.ask(argsOf(t, q))
	}
	eventually(t, "it asks", func() bool { return asked.Load() > 0 })
	count(t, "y", all...)
	well(t, all...)
	if st := n.Status(); st.Restored || len(st.Ills) > 0 || st.Admission.Incarnation != known ||
		asked.Load() > 1 {
		t.Errorf("it asks %d times: %+v", asked.Load(), st)
	}
}

// TestMembersFarAhead: members whose version or era is out of reach are refused: nobody could
// change them any more.
func TestMembersFarAhead(t *testing.T) {
	all := joined(t, 1, 1)
	n := all[0].node
	known, _ := n.Members()
	for what, change := range map[string]func(*store.RegionSet){
		"version": func(s *store.RegionSet) { s.Version += store.MaxAhead + 1 },
		"era":     func(s *store.RegionSet) { s.Version, s.Era = s.Version+1, s.Era+store.MaxAhead+1 },
	} {
		set := known
		change(&set)
		if err := n.learn(set); !errors.Is(err, ErrAnswer) {
			t.Errorf("%s: %v", what, err)
		}
	}
	count(t, "x", all...)
	well(t, all...)
}
