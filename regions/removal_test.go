package regions

import (
	"errors"
	"fmt"
	"strings"
	"testing"
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
// one survivor has not read all that the other has read of it. It is removed, while one survivor
// is down and is started again; then each operation counts once, retries get what the first one got, keys that
// are deleted go, and the name can be given to a new region.
func TestLostRegion(t *testing.T) {
	all := joined(t, 2, 4, 2)
	well(t, all...)
	const n = 40
	must(t, all[1].node.Pause("r2"))
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
	must(t, all[2].node.Pause("r1")) // which therefore takes nothing back
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
	for want, names := range map[string][2]string{"own heir": {"r1", "r1"}, "no region": {"r1", "r9"}, "to be the heir": {"r2", "r1"}, "ASK": {"r1", "r0"}} {
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
		t.Log(err) // it may not have heard of it yet
	}
}
