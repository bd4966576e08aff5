package regions

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fbfkv/fbfkv/resp"
	"github.com/fbfkv/fbfkv/store"
	"github.com/fbfkv/fbfkv/store/part"
)

// openNode makes the region's server answer as a node. A refused region waits longer than any test.
func (r *region) openNode(change func(*Options)) *Node {
	o := r.options(nil)
	o.LastRetry = time.Hour
	if change != nil {
		change(&o)
	}
	n, err := Open(o)
	must(r.t, err)
	r.node = n
	r.server.node.Store(n)
	return n
}

// join makes a server a region of those of another one.
func (r *region) join(name string, with *Node) {
	r.t.Helper()
	set, err := with.Admit(r.t.Context(), r.node.Admission(name, r.server.address()))
	must(r.t, err)
	must(r.t, r.node.Join(r.t.Context(), set))
}

// restart closes a server and opens it at another address.
func (r *region) restart() *Node {
	r.close()
	r.open()
	return r.openNode(nil)
}

// joined opens servers that are the regions r0, r1, … of each other.
func joined(t testing.TB, partitions ...int) []*region { return joinedWith(t, nil, partitions...) }

// joinedWith is joined, with changed options.
func joinedWith(t testing.TB, change func(*Options), partitions ...int) []*region {
	all := newServers(t, partitions...)
	for i, r := range all {
		if r.openNode(change); i == 0 {
			_, err := r.node.Create("r0", r.server.address())
			must(t, err)
		} else {
			r.join(fmt.Sprint("r", i), all[0].node)
		}
	}
	return all
}

// count counts in each region, once that has caught up with the others, and waits until all show the sum.
func count(t testing.TB, key string, all ...*region) {
	t.Helper()
	for i, r := range all {
		err := store.ErrNotCaughtUp
		eventually(t, fmt.Sprintf("region %d counts", i), func() bool {
			err = r.once(key, fmt.Sprint("op", i), 1).Err
			return !errors.Is(err, store.ErrNotCaughtUp)
		})
		must(t, err)
	}
	for i, r := range all {
		eventually(t, fmt.Sprintf("region %d shows the sum", i), func() bool {
			return r.value(key) == int64(len(all))
		})
	}
}

// well waits until regions read each other without a fault.
func well(t testing.TB, all ...*region) {
	t.Helper()
	for i, r := range all {
		eventually(t, fmt.Sprintf("region %d reads all", i), func() bool {
			st := r.node.Status()
			for _, p := range st.Peers {
				if !p.Well() {
					return false
				}
			}
			return st.Member && len(st.Peers) == len(all)-1 && len(st.Ills) == 0
		})
	}
}

// TestJoin: servers with other numbers of partitions join one after the other. All learn of each at once,
// and read it, although they were refused before: a refusal is not waited for. Only the first one decides.
func TestJoin(t *testing.T) {
	all := newServers(t, 4, 2, 8)
	for _, r := range all {
		if st := r.openNode(nil).Status(); st.Member || st.Admission.Partitions != r.partitions {
			t.Errorf("a server that is no region says %+v", st)
		}
	}
	must(t, all[1].once("k", "before", 3).Err)
	set, err := all[0].node.Create("r0", all[0].server.address())
	must(t, err)
	if set.Version != 1 || len(set.Members) != 1 {
		t.Errorf("%+v", set)
	}
	all[1].join("r1", all[0].node)
	count(t, "first", all[:2]...)
	_, err = all[1].node.Admit(t.Context(), all[2].node.Admission("r2", all[2].server.address()))
	var ask *AskError
	if !errors.As(err, &ask) || !strings.HasPrefix(err.Error(), "ASK "+all[0].server.address()+" ") {
		t.Errorf("who does not decide answers %v", err)
	}
	all[2].join("r2", all[0].node)
	count(t, "second", all...)
	well(t, all...)
	if n := all[2].value("k"); n != 3 {
		t.Errorf("what was counted before there were regions is %d", n)
	}
	for i, r := range all {
		if set, ok := r.node.Members(); !ok || set.Version != 3 || len(set.Members) != 3 ||
			set.Self != part.Region(i) {
			t.Errorf("region %d: %+v", i, set)
		} else if a, b := set.Members[1].Joined, set.Members[2].Joined; set.Members[0].Joined != 0 ||
			a != 2 || b != 3 {
			t.Errorf("region %d: they joined in %d and %d", i, a, b)
		}
		if st := r.node.Status(); st.Arbiter != "r0" || st.Name != fmt.Sprint("r", i) ||
			st.Peers[0].Version != 3 {
			t.Errorf("region %d: %+v", i, st)
		}
	}
}

// TestJoinInterrupted: what was interrupted is done again, with the same outcome.
func TestJoinInterrupted(t *testing.T) {
	all := newServers(t, 2, 2)
	a, b := all[0].openNode(nil), all[1].openNode(nil)
	for range 2 {
		_, err := a.Create("r0", all[0].server.address())
		must(t, err)
	}
	admission := b.Admission("r1", all[1].server.address())
	first, err := a.Admit(t.Context(), admission)
	must(t, err)
	eventually(t, "the newcomer refuses", func() bool {
		s := a.Status()
		return len(s.Peers) == 1 && s.Peers[0].Failing
	})
	if all[0].logged("has not joined yet") != 1 || all[0].logged("level=WARN") != 0 {
		t.Errorf("a join is something that is wrong:\n%s", all[0].log.String())
	}
	again, err := a.Admit(t.Context(), admission)
	must(t, err)
	if string(first.Encode()) != string(again.Encode()) || again.Self != 1 || again.Version != 2 {
		t.Errorf("admitted: %+v, again: %+v", first, again)
	}
	for range 2 {
		must(t, b.Join(t.Context(), again))
	}
	count(t, "x", all...)
	well(t, all...)
	must(t, all[1].restart().Join(t.Context(), again))
}

// TestTwoJoin: of servers that join at the same time each is a region in the end, for all.
func TestTwoJoin(t *testing.T) {
	all := newServers(t, 2, 2, 2, 2)
	for _, r := range all {
		r.openNode(nil)
	}
	_, err := all[0].node.Create("r0", all[0].server.address())
	must(t, err)
	var wg sync.WaitGroup
	for i, r := range all[1:] {
		wg.Go(func() {
			set, err := all[0].node.Admit(context.Background(),
				r.node.Admission(fmt.Sprint("new", i), r.server.address()))
			if err == nil {
				err = r.node.Join(t.Context(), set)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	well(t, all...)
	count(t, "x", all...)
}

// TestAddress: a region that has another address is read there by all, once it was admitted again;
// also the one that decides.
func TestAddress(t *testing.T) {
	all := joined(t, 2, 2, 2)
	all[1].restart()
	all[1].join("r1", all[0].node)
	well(t, all...)
	count(t, "x", all...)
	_, err := all[0].restart().Create("r0", all[0].server.address())
	must(t, err)
	for _, r := range all[1:] { // they cannot reach it; so it is one of them that must hear of it
		set, _ := all[0].node.Members()
		set.Self = r.node.Status().Number
		must(t, r.node.Join(t.Context(), set))
	}
	well(t, all...)
	count(t, "y", all...)
}

// TestGossip: members learn from each other, also from one that does not decide.
func TestGossip(t *testing.T) {
	all := joined(t, 2, 2, 2)
	well(t, all...)
	set, _ := all[0].node.Members()
	set.Version, set.Self = 9, 1
	set.Members = append([]store.RegionMember(nil), set.Members...)
	set.Members[0].Address = all[0].server.address() + "0" // which does not exist: nobody hears of it there
	must(t, all[1].node.Change(set))
	eventually(t, "all have learnt it", func() bool {
		a, _ := all[0].node.Members()
		c, _ := all[2].node.Members()
		return a.Version == 9 && c.Version == 9 && a.Self == 0 && c.Self == 2
	})
	// older: nothing
	must(t, all[1].node.learn(store.RegionSet{Group: set.Group, Version: 8, Self: 0,
		Members: set.Members[:1]}))
	if now, _ := all[1].node.Members(); now.Version != 9 || len(now.Members) != 3 {
		t.Errorf("older members are known now: %+v", now)
	}
	set.Group, set.Version, set.Members = set.Group+1, 10, set.Members[:1] // whose members they are not
	if err := all[1].node.learn(set); !errors.Is(err, ErrAnswer) || len(all[1].node.Status().Ills) > 0 {
		t.Errorf("members of another group: %v, %+v", err, all[1].node.Status())
	}
}

// TestRemoved: a region that the others have removed stops, says so, refuses writes and the regions
// that do not know of it yet, and stays so after a restart; the others go on.
func TestRemoved(t *testing.T) {
	all := joined(t, 2, 2, 2)
	well(t, all...)
	must(t, all[0].node.Remove("r2", "r1"))
	gone := func(n *Node) {
		t.Helper()
		eventually(t, "it has stopped", func() bool {
			st := n.Status()
			return len(st.Ills) == 1 && len(n.Mesh().Status()) == 0
		})
		if st := n.Status(); !strings.Contains(st.Ills[0], "removed") {
			t.Errorf("%+v", st)
		}
		if _, err := n.Admit(t.Context(), n.Admission("r9", "127.0.0.1:1")); !errors.Is(err, ErrRemoved) {
			t.Errorf("it admits: %v", err)
		}
		if op := all[1].once("k", "a", 1); !errors.Is(op.Err, store.ErrRemoved) {
			t.Errorf("it writes: %v", op.Err)
		}
		set, _ := n.Members()
		var w resp.Writer
		if n.Pull(t.Context(), new(Told), [][]byte{[]byte("MEMBERS"), fmt.Append(nil, set.Group),
			[]byte("2")}, &w); !strings.HasPrefix(string(w.Bytes()), "-REFUSED") {
			t.Errorf("it tells of members: %s", w.Bytes())
		}
	}
	gone(all[1].node)
	eventually(t, "it says so", func() bool { return all[1].logged("have removed this one") > 0 })
	if n := all[1].logged("have removed this one"); n != 1 {
		t.Errorf("%d lines in the log", n)
	}
	eventually(t, "the other one has heard of it", func() bool { return all[2].logged("has changed") > 0 })
	if all[2].logged("members=2") != 1 {
		t.Error("the log tells another number of members")
	}
	count(t, "x", all[0], all[2])
	for _, r := range []*region{all[0], all[2]} { // nobody tells it again
		r.close()
		r.node = nil
		r.open()
	}
	gone(all[1].restart())
	if n := all[1].logged("have removed this one"); n != 2 {
		t.Errorf("%d lines in the log when it has started again", n)
	}
}

// TestRemovedQuietly: the removal of a region that leaves is no failure in anybody's log, whoever hears of it
// first.
func TestRemovedQuietly(t *testing.T) {
	all := joined(t, 2, 2, 2)
	well(t, all...)
	count(t, "x", all...)
	_, err := all[2].node.Leave(true)
	must(t, err)
	before := make([]int, len(all))
	lines := func(r *region) int { return r.logged("level=WARN") + r.logged("level=ERROR") }
	for i, r := range all {
		before[i] = lines(r)
	}
	pause(t, all[1].node, "r0") // it hears of it by the removed one's refusal
	must(t, all[0].node.Remove("r1", "r2"))
	eventually(t, "r2 has stopped", func() bool { return len(all[2].node.Mesh().Status()) == 0 })
	eventually(t, "r1 is refused", func() bool {
		return all[1].logged("that it was removed") == 1
	})
	must(t, all[1].node.Resume("r0"))
	removed(t, "r2", all[:2]...)
	for i, r := range all {
		if n := lines(r); n != before[i] {
			t.Errorf("region %d logs %d failures: %s", i, n-before[i], r.log.String())
		}
	}
}

// TestAdmit refuses what would be a mistake.
func TestAdmit(t *testing.T) {
	all := newServers(t, 2, 2, 2, 2)
	a := all[0].openNode(nil)
	b := all[1].openNode(nil)
	if _, err := a.Admit(t.Context(), b.Admission("r1", all[1].server.address())); !errors.Is(err,
		store.ErrNoRegions) {
		t.Errorf("a server that is no region admits: %v", err)
	}
	for address, want := range map[string]string{"": "missing", "7501": "HOST:PORT", ":7501": "HOST:PORT",
		"h:0": "HOST:PORT", "a b:1": "HOST:PORT",
		"0.0.0.0:1": "no address", "[::]:1": "no address"} {
		if _, err := a.Create("r0", address); !errors.Is(err, ErrMember) ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("created at %q: %v", address, err)
		}
	}
	_, err := a.Create("r0", all[0].server.address())
	must(t, err)
	all[1].join("r1", a)
	other := all[2].openNode(nil)
	_, err = other.Create("r2", all[2].server.address())
	must(t, err)
	all[3].server.close()
	all[3].password = "secret"
	all[3].close()
	all[3].open()
	password := ""
	free := all[3].openNode(func(o *Options) { o.Login = func() (string, string) { return "", password } })
	here, mine := all[3].server.address(), free.Admission
	with := func(change func(*Admission)) Admission { a := mine("r3", here); change(&a); return a }
	for _, tt := range []struct {
		a    Admission
		want string
	}{
		{mine("", here), "name"}, {mine("a b", here), "name"}, {mine(strings.Repeat("n", 65), here), "name"},
		{mine("r1", here), "another server is the region r1"},
		{mine("r3", all[1].server.address()), "the address of the region r1"},
		{mine("r3", "10.0.0.1:1"), "own machine"}, {mine("r3", "127.0.0.1:1"), "cannot be reached"},
		{mine("r3", here), "does not let this region read"}, // it wants a password
		{mine("r3", all[2].server.address()), "does not let this region read"},
		{with(func(a *Admission) { a.Partitions = 3 }), "power of two"}, {with(func(a *Admission) { a.Data = "" }), "data"},
		{b.Admission("r3", here), "is the region r1 already"}, {b.Admission("r1", here), "does not let"},
		{b.Admission("r1", all[2].server.address()), "does not let"},
		{mine("r3", all[0].server.address()), "the address of the region r0"},
	} {
		if _, err := a.Admit(t.Context(), tt.a); !errors.Is(err, ErrMember) ||
			!strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v, want %q", tt.a, err, tt.want)
		}
	}
	if set, _ := a.Members(); set.Version != 2 {
		t.Errorf("refusals have changed the members: %+v", set)
	}
	set, _ := b.Members()
	theirs := set
	theirs.Group++
	_, err = a.Create("r9", all[0].server.address())
	for want, err := range map[string]error{
		"is the region r0 already": err,
		"a region already":         b.Join(t.Context(), theirs),
		"another directory":        free.Join(t.Context(), set),
		"no members":               free.Join(t.Context(), store.RegionSet{}),
		"r0 itself":                a.Pause("r0"),
		"there is no region":       a.Resume("nobody"),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	admission := mine("r3", here)
	set.Self, set.Members = 2, append(set.Members[:2:2], admission.member(2))
	for address, want := range map[string]string{"127.0.0.1:1": "cannot be reached", here: "is no region",
		all[1].server.address(): "another server, the region r1"} {
		password = map[bool]string{true: "secret"}[address == here]
		set.Members[0].Address = address
		if err := free.Join(t.Context(), set); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("joined by %s: %v, want %q", address, err, want)
		}
	}
	if err := free.Pause("r0"); !errors.Is(err, store.ErrNoRegions) {
		t.Errorf("a server that is no region pauses one: %v", err)
	}
}

// TestUnsafe: a server that strangers can read neither becomes a region nor lets others in.
func TestUnsafe(t *testing.T) {
	all := newServers(t, 2, 2)
	safe := true
	for _, r := range all {
		r.openNode(func(o *Options) {
			o.Announce = r.server.address
			o.Unsafe = func() error {
				if safe {
					return nil
				}
				return errors.New("strangers")
			}
		})
	}
	a, b := all[0].node, all[1].node
	_, err := a.Create("r0", "overridden:1")
	must(t, err)
	set, err := a.Admit(t.Context(), b.Admission("r1", ""))
	must(t, err)
	safe = false
	_, created := b.Create("r1", "")
	_, admitted := a.Admit(t.Context(), b.Admission("r1", ""))
	for _, err := range []error{created, admitted, b.Join(t.Context(), set)} {
		if err == nil || err.Error() != "strangers" {
			t.Errorf("%v", err)
		}
	}
	if st := b.Status(); st.Refuses != "strangers" {
		t.Errorf("it does not say before that it refuses: %+v", st)
	}
	safe = true
	must(t, b.Join(t.Context(), set))
	well(t, all...)
}

// TestRestored: a directory that was restored decides nothing, and says why; if there is no other
// region it goes on when it is created once more.
func TestRestored(t *testing.T) {
	all := newServers(t, 2, 2)
	n := all[0].openNode(nil)
	_, err := n.Create("r0", all[0].server.address())
	must(t, err)
	set, _ := n.Members()
	set.Version++
	set.Members = append([]store.RegionMember(nil), set.Members...)
	set.Members[0].Incarnation++ // as if the directory had another one since
	must(t, n.Change(set))
	if st := n.Status(); len(st.Ills) != 1 || !strings.Contains(st.Ills[0], "restored") {
		t.Errorf("%+v", st)
	}
	newcomer := all[1].openNode(nil).Admission("r1", all[1].server.address())
	refuses := func(what string, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), "restored") {
			t.Errorf("%s: it decides: %v", what, err)
		}
	}
	refuses("flush", n.Flush())
	_, err = n.Admit(t.Context(), newcomer)
	refuses("admit", err)
	refuses("write", all[0].once("k", "a", 1).Err)
	_, err = n.Create("r0", all[0].server.address())
	must(t, err)
	must(t, all[0].once("k", "a", 1).Err)
	if st := n.Status(); len(st.Ills) != 0 || st.Restored || st.Version != set.Version+1 {
		t.Errorf("%+v", st)
	}
	all[1].join("r1", n)
	count(t, "x", all...)
	well(t, all...)

	set, _ = n.Members()
	set.Version++
	set.Members = append([]store.RegionMember(nil), set.Members...)
	set.Members[0].Incarnation++ // again
	must(t, n.Change(set))
	_, err = n.Create("r0", all[0].server.address())
	refuses("create beside another one", err)
	all[0].restart()
	refuses("write", all[0].once("k", "b", 1).Err)
	if all[0].logged("restored from a backup") != 1 {
		t.Error("the log does not say why nothing is written")
	}
}

// TestExcused: a refusal is forgotten when the other region asks, but only once: it may have
// other reasons.
func TestExcused(t *testing.T) {
	all := newRegions(t, 2, 2)
	var asked atomic.Int64
	address := fakeSource(t, func([][]byte) string { asked.Add(1); return "-REFUSED for ever\r\n" })
	r := all[1]
	r.start(map[part.Region]string{0: address}, func(o *Options) { o.LastRetry = time.Hour })
	refused := func() bool {
		p := r.mesh.peers[peerKey{0, 0}]
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.refused
	}
	eventually(t, "it is refused", func() bool { return asked.Load() == 1 && refused() })
	r.mesh.askedBy(0)
	eventually(t, "it asks at once", func() bool { return asked.Load() == 2 && refused() })
	for range 100 {
		r.mesh.askedBy(0)
		time.Sleep(time.Microsecond)
	}
	r.mesh.Resume(0)
	eventually(t, "it asks again when it is told to", func() bool { return asked.Load() >= 3 && refused() })
	if n := asked.Load(); n != 3 {
		t.Errorf("it has asked %d times", n)
	}
}

// TestBadMembers: answers that are no members change nothing, and are no reason to ask again at once.
func TestBadMembers(t *testing.T) {
	older := string(store.RegionSet{Group: 77, Version: 3,
		Members: []store.RegionMember{{Name: "r0", Partitions: 2},
			{Region: 1, Name: "r1", Partitions: 2}}}.Encode())
	for _, bad := range []string{fmt.Sprintf("$%d\r\n%s\r\n", len(older), older), "$-1\r\n", "$2\r\n{}\r\n",
		"+OK\r\n", "-ERR no\r\n", "$999999\r\n", `$13` + "\r\n" + `{"Group":"x"}` + "\r\n"} {
		s := newServers(t, 2)[0]
		n := s.openNode(func(o *Options) { o.LastRetry = time.Millisecond })
		var told atomic.Int64
		address := fakeSource(t, func(args [][]byte) string {
			if string(args[1]) != wordMembers {
				return "*2\r\n:1\r\n:9\r\n"
			}
			told.Add(1)
			return bad
		})
		set := setOf([]*region{s, s}, 0)
		set.Members[1].Address = address
		must(t, n.Change(set))
		eventually(t, "it has asked", func() bool {
			st := n.Status()
			return told.Load() > 1 && st.Peers[0].Failing
		})
		if now, _ := n.Members(); now.Version != 0 || n.Status().Peers[0].Pulls != 0 {
			t.Errorf("%q: %+v, %+v", bad, now, n.Status())
		}
	}
}

// TestMembersRequest: the members are told to those that know the group, also to a region that is
// no longer one of them.
func TestMembersRequest(t *testing.T) {
	all := newServers(t, 2, 2)
	n, none := all[0].openNode(nil), all[1].openNode(nil)
	set, err := n.Create("r0", all[0].server.address())
	must(t, err)
	group := fmt.Sprint(set.Group)
	for _, tt := range []struct {
		n    *Node
		args string
		want string
	}{
		{n, "MEMBERS " + group + " 7", string(set.Encode())},
		{n, "members " + group + " 0", string(set.Encode())},
		{n, "MEMBERS 1 0", "-REFUSED"}, {n, "MEMBERS " + group + " 16", "-ERR region"},
		{n, "MEMBERS " + group, "-ERR wrong number"},
		{n, "MEMBERS -1 0", "-ERR group"}, {n, "MEMBERS", "-ERR wrong number"},
		{none, "MEMBERS 1 0", "-NOREGION"},
	} {
		var w resp.Writer
		var args [][]byte
		for _, word := range strings.Fields(tt.args) {
			args = append(args, []byte(word))
		}
		if tt.n.Pull(t.Context(), new(Told), args, &w); !strings.Contains(string(w.Bytes()), tt.want) {
			t.Errorf("%s: %s, want %s", tt.args, w.Bytes(), tt.want)
		}
	}
}

// FuzzMembers: whatever answers, members are read that could be logged, or none.
func FuzzMembers(f *testing.F) {
	set := store.RegionSet{Group: 1, Version: 2, Self: 0,
		Members: []store.RegionMember{{Name: "r0", Partitions: 4, Address: "h:1",
			Data: strings.Repeat("0a", 16)}}}
	b := string(set.Encode())
	for _, s := range []string{fmt.Sprintf("$%d\r\n%s\r\n", len(b), b), "$-1\r\n", "-REFUSED no\r\n",
		"$5\r\n{}", "$12\r\n{\"Group\": -1}\r\n", ":1\r\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r := answerReader{r: bufio.NewReaderSize(bytes.NewReader(b), 4096)}
		set, err := r.members()
		if err != nil {
			return
		}
		again, err := store.DecodeRegionSet(set.Encode())
		if _, ok := set.Member(set.Self); err != nil || !ok || len(set.Encode()) > store.MaxRegionSet ||
			!reflect.DeepEqual(again, set) {
			t.Errorf("%+v: %v", set, err)
		}
	})
}

// TestNumbers are given once each.
func TestNumbers(t *testing.T) {
	set := store.RegionSet{Members: []store.RegionMember{{Region: 0, Name: "r0",
		Address: "h0:1"}, {Region: 13, Name: "r13", Address: "h13:1"}}}
	data := func(n int) string { return fmt.Sprintf("%032x", n) }
	for n := 14; n <= 16; n++ {
		a := Admission{Name: fmt.Sprint("r", n), Partitions: 1, Data: data(n),
			Address: fmt.Sprintf("h%d:1", n)}
		err := a.admit(&set)
		if last := set.Members[len(set.Members)-1]; n < 16 && (err != nil || last.Region != part.Region(n)) ||
			n == 16 && !errors.Is(err, ErrMember) {
			t.Errorf("region %d: %v, %+v", n, err, last)
		}
	}
}
