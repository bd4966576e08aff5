package regions

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/store"
)

// removed waits until regions say that a removal is done.
func removed(t testing.TB, name string, all ...*region) {
	t.Helper()
	for _, r := range all {
		eventually(t, fmt.Sprintf("the removal of %s is done", name), func() bool {
			for _, s := range r.node.Removals() {
				if s.Name == name {
					return s.Done
				}
			}
			return false
		})
	}
}

// TestLostRegion: a region is lost that has applied operations which another one applied first, and
// one survivor has not read all that the other has read of it. It is removed, while one survivor is
// down and is started again; then each operation counts once, retries get what the first one got,
// keys that are deleted go, and the name can be given to a new region.
func TestLostRegion(t *testing.T) {
	all := joined(t, 2, 4, 2)
	well(t, all...)
	const n = 40
	pause(t, all[1].node, "r2")
	for i := range n { // r1 does not hear of what r2 does first
		must(t, all[2].once(fmt.Sprint("k", i%4), fmt.Sprint("lost", i), 1).Err)
	}
	sum := func(r *region) (sum int64) {
		for i := range 4 {
			sum += r.value(fmt.Sprint("k", i))
		}
		return sum
	}
	eventually(t, "r0 has read r2", func() bool { return sum(all[0]) == n })
	pause(t, all[2].node, "r1") // which therefore takes nothing back
	for i := range n {
		op := all[1].once(fmt.Sprint("k", i%4), fmt.Sprint("lost", i), 1)
		must(t, op.Err)
	}
	for _, r := range all[1:] { // opened, but nobody knows where, and it reads nobody
		r.close()
		r.node = nil
		r.open()
	}
	if err := all[0].node.Remove("r1", "r2"); err != nil {
		t.Fatal(err)
	}
	must(t, all[0].node.Remove("r1", "r2")) // nothing new
	for want, names := range map[string][2]string{"own heir": {"r1", "r1"}, "no region": {"r1",
		"r9"}, "to be the heir": {"r2", "r1"}, "its heir is r1": {"r0", "r2"}, "ASK": {"r1", "r0"}} {
		if err := all[0].node.Remove(names[0], names[1]); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("heir %s of %s: %v", names[0], names[1], err)
		}
	}
	eventually(t, "it says what it waits for", func() bool {
		s := all[0].node.Removals()
		return len(s) == 1 && !s[0].Done && strings.Contains(s[0].State, "what the region r1 knows of it")
	})
	all[1].openNode(nil)
	all[1].join("r1", all[0].node)
	removed(t, "r2", all[:2]...)
	for _, r := range all[:2] {
		eventually(t, "each operation counts once", func() bool { return sum(r) == n })
		for i := range n {
			if op := r.once(fmt.Sprint("k", i%4), fmt.Sprint("lost", i), 1); op.Err != nil || op.Applied {
				t.Fatalf("a retry is applied: %+v", op)
			}
		}
	}
	if err := all[1].node.Remove("r1", "r0"); err != nil {
		t.Fatal(err)
	}
	removed(t, "r0", all[1])
	if got := sum(all[1]); got != n {
		t.Errorf("alone: %d", got)
	}
	if err := all[0].node.Remove("r0", "r1"); !errors.Is(err, ErrRemoved) && err != nil {
		t.Log(err) // it may not know of it yet
	}
}

// TestRemovedHeir: an heir that is removed, too, leaves to another one what it was to look after,
// be that named or not.
func TestRemovedHeir(t *testing.T) {
	all := joined(t, 1, 1, 1)
	n := all[0].node
	must(t, n.Remove("r1", "r2"))
	if err := n.Remove("r0", "r2"); err == nil {
		t.Error("the heir is another one now, and the first one is there")
	}
	must(t, n.Remove("r0", "r1", "r2"))
	removed(t, "r1", all[0])
	removed(t, "r2", all[0])
}

// TestRemovedBefore: a region that joins later says that it is about a removal of before.
func TestRemovedBefore(t *testing.T) {
	all := joined(t, 1, 1, 1)
	n := all[0].node
	must(t, n.Remove("r1", "r2"))
	removed(t, "r2", all[:2]...)
	all[1].server.close()
	more := newServers(t, 1)
	more[0].openNode(nil)
	more[0].join("r3", n)
	eventually(t, "it says what it waits for", func() bool {
		s := more[0].node.Removals()
		return len(s) == 1 && strings.Contains(s[0].State, "was removed before this region joined, which "+
			"must still read what the region r1 knows of it")
	})
}

// TestRestoredAlone: a directory that was restored when all other regions were lost removes them and
// goes on, with its data, and others can join it.
func TestRestoredAlone(t *testing.T) {
	all := joined(t, 2, 2, 4)
	well(t, all...)
	count(t, "x", all...)
	set, _ := all[1].node.Members()
	set.Version++
	set.Members = append([]store.RegionMember(nil), set.Members...)
	set.Members[1].Incarnation++ // as if the directory had another one since
	for _, r := range []*region{all[0], all[2]} {
		r.close()
		r.node = nil
		r.open()
	}
	n := all[1].node
	must(t, n.Change(set))
	var ask *AskError
	if err := n.Remove("r1", "r2"); !errors.As(err, &ask) {
		t.Errorf("it decides although it is not alone: %v", err)
	}
	if err := n.Remove("r1", "r0", "r0"); err == nil || !strings.Contains(err.Error(), "restored") {
		t.Errorf("one that was named twice is two: %v", err)
	}
	if op := all[1].once("k", "a", 1); !errors.Is(op.Err, store.ErrRestored) {
		t.Errorf("it writes: %v", op.Err)
	}
	must(t, n.Remove("r1", "r0", "r2"))
	must(t, all[1].once("k", "a", 1).Err)
	removed(t, "r0", all[1])
	removed(t, "r2", all[1])
	if st := n.Status(); len(st.Ills) != 0 || len(st.Peers) != 0 || len(st.Removals) != 2 {
		t.Errorf("%+v", st)
	}
	more := newServers(t, 4)
	more[0].openNode(nil)
	if _, err := n.Admit(t.Context(),
		all[2].restart().Admission("r2", all[2].server.address())); err == nil ||
		!strings.Contains(err.Error(), "empty directory") {
		t.Errorf("a region comes back: %v", err)
	}
	more[0].join("r2", n) // the name is free
	well(t, all[1], more[0])
	if eventually(t, "the newcomer has all",
		func() bool { return more[0].value("x") == 3 }); all[1].value("x") != 3 {
		t.Errorf("%d", all[1].value("x"))
	}
	count(t, "y", all[1], more[0])
	removed(t, "r0", all[1], more[0]) // who joins hears of it, too
}

// TestStray: while a removed region hears nothing of its removal, the others say that it goes on; but not
// once it has heard, nor one that has started since, nor of another server at its address.
func TestStray(t *testing.T) {
	often := func(o *Options) { o.strayPeriod = time.Millisecond }
	all := joinedWith(t, often, 2, 2, 2)
	well(t, all...)
	stray, address := all[1], all[1].server.address()
	says := func(r *region) bool {
		return strings.Contains(fmt.Sprint(r.node.Status().Ills), "r1 was removed and still counts at "+address)
	}
	silent := func(r *region) {
		t.Helper()
		for range 3 {
			was := r.node.stray.Load()
			eventually(t, "it asks again", func() bool { return r.node.stray.Load() != was })
		}
		if says(r) {
			t.Errorf("ills: %q", r.node.Status().Ills)
		}
	}
	pause(t, stray.node, "r0")
	pause(t, stray.node, "r2")
	must(t, all[0].node.Remove("r2", "r1"))
	eventually(t, "both say so", func() bool { return says(all[0]) && says(all[2]) })
	must(t, stray.once("k", "a", 1).Err)
	must(t, all[2].node.Close())
	all[2].openNode(often)
	silent(all[2])
	must(t, stray.node.Resume("r0"))
	eventually(t, "it has heard", func() bool { return !says(all[0]) })

	must(t, stray.node.Close())
	stray.server.close()
	next := &region{t: t, n: 3, partitions: 2, fs: vfs.NewMem(),
		listen: func() (net.Listener, error) { return net.Listen("tcp", address) }}
	next.open()
	t.Cleanup(next.close)
	next.openNode(often)
	next.join("r3", all[0].node)
	silent(all[0])
}
