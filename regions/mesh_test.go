package regions

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fbfkv/fbfkv/store"
	"github.com/fbfkv/fbfkv/store/part"
)

// world is three regions, each of which reads the others through proxies.
type world struct {
	all   []*region
	links map[[2]int]*proxy // by reader and source
}

func (w *world) start(r *region) {
	peers := make(map[part.Region]string)
	for i := range w.all {
		if i != r.n {
			peers[part.Region(i)] = w.links[[2]int{r.n, i}].address()
		}
	}
	r.start(peers, func(o *Options) { o.Block, o.Timeout, o.Most = 200*time.Millisecond, time.Second, 2000 })
}

// restart ends a region and opens it again, with or without a checkpoint, at another address.
func (w *world) restart(t *testing.T, r *region, checkpoint bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if checkpoint {
		must(t, r.s.Snapshot())
	}
	r.close()
	r.open()
	address := r.server.address()
	for pair, link := range w.links {
		if pair[1] == r.n {
			link.target.Store(&address)
		}
	}
	w.start(r)
}

// TestThreeRegions: clients send each operation to two regions at the same time, and add without
// ids, while links are cut, lose all bytes and heal, and each region ends and starts again.
// In the end all regions show the same, each operation once, and know each opid.
func TestThreeRegions(t *testing.T) {
	const clients, each, keys = 6, 120, 12
	w := &world{all: newRegions(t, 4, 2, 8), links: make(map[[2]int]*proxy)}
	for i, r := range w.all {
		r.skew.Store(int64(i-1) * 300)
		for j := range w.all {
			if i != j {
				w.links[[2]int{i, j}] = newProxy(t, w.all[j].server.address())
			}
		}
	}
	for _, r := range w.all {
		w.start(r)
	}
	var want [keys]int64
	turns := make(chan int, clients*each)
	var wg sync.WaitGroup
	for c := range clients {
		for i := range each {
			want[i%keys] += int64(i%5) + 1 + 1
		}
		wg.Go(func() {
			for i := range each {
				key, id := fmt.Sprint("k", i%keys), fmt.Sprint("op", c, ".", i)
				var two sync.WaitGroup
				for k := range 2 {
					two.Go(func() {
						if op := w.all[(c+i+k)%3].once(key, id, int64(i%5)+1); op.Err != nil {
							t.Error(op.Err)
						}
					})
				}
				if op := w.all[i%3].do(store.Op{Kind: store.IncrBy, Key: []byte(key),
					Delta: 1}); op.Err != nil {
					t.Error(op.Err)
				}
				two.Wait()
				turns <- i
			}
		})
	}
	faults := []func(){
		func() { w.links[[2]int{0, 1}].cut() },
		func() { w.links[[2]int{2, 0}].dropping.Store(true) },
		func() { w.restart(t, w.all[1], true) },
		func() { w.links[[2]int{0, 1}].heal(); w.links[[2]int{1, 2}].cut() },
		func() { w.restart(t, w.all[2], false) },
		func() { w.links[[2]int{1, 2}].heal(); w.links[[2]int{1, 0}].cut() },
		func() { w.restart(t, w.all[0], false) },
	}
	for n := range clients * each {
		<-turns
		if i := n * (len(faults) + 1) / (clients * each); i > (n-1)*(len(faults)+1)/(clients*each) && n > 0 {
			faults[i-1]()
		}
	}
	wg.Wait()
	for _, l := range w.links {
		l.heal()
	}
	for _, r := range w.all {
		for k := range keys {
			key := fmt.Sprint("k", k)
			defer func() {
				if t.Failed() {
					t.Logf("region %d: %s = %d, want %d", r.n, key, r.value(key), want[k])
				}
			}()
		}
	}
	eventually(t, "all regions show each operation once", func() bool {
		for _, r := range w.all {
			for k := range keys {
				if r.value(fmt.Sprint("k", k)) != want[k] {
					return false
				}
			}
		}
		return true
	})
	w.known(t, clients, each, keys)
	w.settled(t)
}

// known checks that a retry in any region gets the same answer.
func (w *world) known(t *testing.T, clients, each, keys int) {
	for c := range clients {
		for i := range each {
			key, id := fmt.Sprint("k", i%keys), fmt.Sprint("op", c, ".", i)
			first := w.all[0].once(key, id, int64(i%5)+1)
			for _, r := range w.all {
				if op := r.once(key, id, int64(i%5)+1); op.Err != nil || op.Applied ||
					op.Value != first.Value {
					t.Fatalf("region %d: retry of %s: %d, %v, %v; elsewhere %d", r.n, id, op.Value,
						op.Applied, op.Err, first.Value)
				}
			}
		}
	}
}

// TestWaiting: a region knows how much another one has not taken: nothing once both are equal, also of what
// is not told, and after a restart.
func TestWaiting(t *testing.T) {
	w := &world{all: newRegions(t, 2, 2), links: make(map[[2]int]*proxy)}
	a, b := w.all[0], w.all[1]
	w.links[[2]int{0, 1}] = newProxy(t, b.server.address())
	w.links[[2]int{1, 0}] = newProxy(t, a.server.address())
	const n = 1000
	for i := range n {
		a.once(fmt.Sprint("k", i%10), fmt.Sprint(i), 1)
	}
	if got := a.s.RegionWaiting(); got[1] < n || got[0] != 0 {
		t.Errorf("of %d operations: %v", n, got)
	}
	w.start(a)
	w.start(b)
	none := func() bool {
		return a.of(1).LagOps+b.of(0).LagOps+a.s.RegionWaiting()[1]+b.s.RegionWaiting()[0] == 0
	}
	eventually(t, "nothing waits", none)
	w.restart(t, b, true)
	if got := b.s.RegionWaiting(); got[0] != 0 {
		t.Errorf("after a restart: %v", got)
	}
	b.once("k1", "more", 1)
	if got := b.s.RegionWaiting(); got[0] == 0 {
		t.Errorf("of one operation: %v", got)
	}
	eventually(t, "nothing waits again", none)
}

// settled checks what regions say of each other when all is well.
func (w *world) settled(t *testing.T) {
	eventually(t, "nobody lags, and clocks lead as they do", func() bool {
		for _, r := range w.all {
			for i := range w.all {
				s := r.of(i)
				// on a busy machine an answer may take long
				skew := s.ClockSkewMs - int64(i-r.n)*300
				if i != r.n && (s.LagOps != 0 || s.LagMs != 0 || !s.Connected || s.Failing || skew < -250 ||
					skew > 250) {
					return false
				}
			}
		}
		return true
	})
	for _, r := range w.all {
		for i := range w.all {
			s := r.of(i)
			if i == r.n {
				continue
			}
			if s.Name != fmt.Sprint("region", i) || s.Pulls == 0 || s.Bytes == 0 ||
				len(s.Ranges) != max(r.partitions, w.all[i].partitions) {
				t.Errorf("region %d of region %d: %+v", r.n, i, s)
			}
		}
	}
}

// two opens two regions, the second of which reads the first.
func two(t testing.TB, change func(*Options)) (source, reader *region) {
	all := newRegions(t, 4, 2)
	all[1].start(map[part.Region]string{0: all[0].server.address()}, change)
	return all[0], all[1]
}

// TestWoken: what is committed is told at once, and not when the wait of the pull is over.
func TestWoken(t *testing.T) {
	a, b := two(t, nil) // waits a minute
	eventually(t, "b has asked", func() bool { return a.server.pulls.Load() > 0 })
	for i := range 20 {
		a.once(fmt.Sprint("k", i), "x", 1)
		eventually(t, "b has taken it", func() bool { return b.value(fmt.Sprint("k", i)) == 1 })
	}
}

// TestReadAgain: a link that is back is well, though there is nothing to tell.
func TestReadAgain(t *testing.T) {
	all := newRegions(t, 1, 1)
	p := newProxy(t, all[0].server.address())
	all[1].start(map[part.Region]string{0: p.address()}, nil) // an answer without news takes a minute
	for range 2 {
		eventually(t, "it is read", func() bool { s := all[1].of(0); return s.Connected && !s.Failing })
		p.cut()
		eventually(t, "it is not", func() bool { s := all[1].of(0); return !s.Connected && s.Failing })
		p.heal()
	}
	if n := all[1].logged("another region is read again"); n == 0 {
		t.Error("the log does not say that it is read again")
	}
}

// TestPause: a region that is paused is not read, and catches up when it is resumed. Also one
// that has changed its address.
func TestPause(t *testing.T) {
	a, b := two(t, nil)
	a.once("k", "x", 1)
	eventually(t, "b has taken it", func() bool { return b.value("k") == 1 })
	if b.mesh.Pause(5) || !b.mesh.Pause(0) {
		t.Error("regions that are read are not those that can be paused")
	}
	eventually(t, "it is paused", func() bool { s := b.of(0); return s.Paused && !s.Connected })
	a.once("k", "y", 1)
	must(t, b.mesh.SetPeers(map[part.Region]string{0: newProxy(t, a.server.address()).address()}))
	eventually(t, "it shows", func() bool { s := b.of(0); return s.Paused && s.LagMs > 0 })
	if b.value("k") != 1 {
		t.Error("it was read while it was paused")
	}
	b.mesh.Resume(0)
	eventually(t, "b has taken it", func() bool { return b.value("k") == 2 })
	must(t, b.mesh.SetPeers(nil))
	if len(b.mesh.Status()) != 0 {
		t.Error("a region is read that was removed")
	}
	if err := b.mesh.SetPeers(map[part.Region]string{1: "x"}); err == nil {
		t.Error("a region reads itself")
	}
}

// TestResumeSilent: a region that is resumed connects anew, at once, if what it waits for was lost
// on the way.
func TestResumeSilent(t *testing.T) {
	all := newRegions(t, 1, 1)
	a, b := all[0], all[1]
	p := newProxy(t, a.server.address())
	b.start(map[part.Region]string{0: p.address()}, func(o *Options) { o.Timeout = time.Hour })
	a.once("k", "x", 1)
	eventually(t, "b has taken it", func() bool { return b.value("k") == 1 })
	p.dropping.Store(true)
	a.once("k", "y", 1)
	eventually(t, "it is lost", func() bool { return p.dropped.Load() > 0 })
	p.dropping.Store(false)
	b.mesh.Resume(0)
	eventually(t, "b has taken it", func() bool { return b.value("k") == 2 })
}

// TestResumeGoesOn: a region that is resumed while it takes a state goes on behind the part that it
// has.
func TestResumeGoesOn(t *testing.T) {
	all := newRegions(t, 1, 1)
	smallLogs(t, all)
	a, b := all[0], all[1]
	for round := range 3 {
		for i := range 100 {
			a.once(fmt.Sprint("k", i), fmt.Sprint(round), 1)
		}
		must(t, a.s.Snapshot())
	}
	var first, later atomic.Int64
	a.server.change.Store(func() *func(args [][]byte, reply []byte) []byte {
		change := func(args [][]byte, reply []byte) []byte {
			switch {
			case !isWord(args, wordState):
			case string(args[10]) == "0": // a sequence there is from the second page on
				first.Add(1)
			case later.Add(1) == 2:
				b.mesh.Resume(0)
			}
			return reply
		}
		return &change
	}())
	b.start(map[part.Region]string{0: a.server.address()}, func(o *Options) { o.Most = 1000 })
	eventually(t, "b has taken the state", func() bool {
		return b.of(0).StateExchanges == 1 && b.value("k99") == 3
	})
	if n := first.Load(); n != 1 || later.Load() < 3 {
		t.Errorf("it was begun %d times, and gone on with %d times", n, later.Load())
	}
}

// TestRefused: a region with another incarnation is not read; that is logged once however
// often it was tried, and mends when the reader learns of it.
func TestRefused(t *testing.T) {
	all := newRegions(t, 4, 2)
	a, b := all[0], all[1]
	set := setOf(all, 1)
	set.Members[0].Incarnation++
	must(t, b.s.SetRegions(set))
	b.start(map[part.Region]string{0: a.server.address()}, nil)
	eventually(t, "it was tried often", func() bool { return a.server.pulls.Load() > 5 })
	if s := b.of(0); !s.Failing || !strings.HasPrefix(s.LastError, "refused: incarnation") {
		t.Errorf("%+v", s)
	}
	if n := b.logged("level=WARN"); n != 1 {
		t.Errorf("%d warnings", n)
	}
	must(t, b.s.SetRegions(setOf(all, 1)))
	a.once("k", "x", 1)
	eventually(t, "b has taken it", func() bool { return b.value("k") == 1 })
	if s := b.of(0); s.Failing || b.logged("read again") != 1 {
		t.Errorf("%+v", s)
	}
}

// TestClose: Close ends connections that hang, and leaves no goroutine.
func TestClose(t *testing.T) {
	all := newRegions(t, 4, 2)
	l := newProxy(t, all[0].server.address())
	l.dropping.Store(true)
	// it waits an hour for an answer
	all[1].start(map[part.Region]string{0: l.address()}, func(o *Options) { o.Timeout = time.Hour })
	eventually(t, "it has connected", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.conns) > 0
	})
	closed := make(chan error, 1)
	go func() { closed <- all[1].mesh.Close() }()
	eventually(t, "it closes", func() bool { return len(closed) > 0 })
	must(t, <-closed)
	eventually(t, "no goroutine is left", func() bool {
		stacks := make([]byte, 1<<20)
		return !strings.Contains(string(stacks[:runtime.Stack(stacks, true)]), "regions.(*peer)")
	})
	if err := all[1].mesh.SetPeers(nil); err == nil {
		t.Error("it reads after Close")
	}
}
