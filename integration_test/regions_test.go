package integration

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

var (
	regionFaultCount        = flag.Int("regions.faults", 9, "how many faults TestRegionFaults makes")
	regionNetworkFaultCount = flag.Int("regions.networkfaults", 3, "how many faults TestRegionNetworkFaults makes; it needs root, ip and iptables")
	regionFaultSeed         = flag.Uint64("regions.seed", 0, "the seed by which they choose them; 0: draw one")
	regionsLost             = flag.Int("regions.lost", 1, "how many regions may be lost in TestRegionFaults; at most 13, as numbers are never given again")
	regionFaultKind         = flag.String("regions.fault", "", "the only kinds of faults that TestRegionFaults makes: a regular expression; \"\": all")
)

// regionFaults are what may happen to regions. Each func breaks something and mends it.
var regionFaults = []struct {
	kind string
	make func(w *regionWorld, a, b, c *regionServer)
}{
	{"kill -9 of a region", func(w *regionWorld, a, _, _ *regionServer) {
		a.kill()
		w.last()
		a.start()
	}},
	{"kill -9 of a region that takes what others did", (*regionWorld).killWhileTaking},
	{"kill -9 of a region in the middle of an answer", (*regionWorld).killWhileAnswering},
	{"kill -9 of all, in any order", func(w *regionWorld, a, b, c *regionServer) {
		for _, r := range []*regionServer{a, b, c} {
			r.kill()
		}
		w.last()
		for _, r := range []*regionServer{b, a, c} {
			r.start()
		}
	}},
	{"two regions are cut off from each other", func(w *regionWorld, a, b, _ *regionServer) {
		w.apart(a, b)
		w.last()
	}},
	{"one region is cut off from all", func(w *regionWorld, a, b, c *regionServer) {
		w.apart(a, b, c)
		w.last()
	}},
	{"nobody hears a region, and it hears all", func(w *regionWorld, a, b, c *regionServer) {
		w.cut(a, linkMute, b, c)
		w.last()
	}},
	{"answers of a region do not arrive", func(w *regionWorld, a, b, c *regionServer) {
		w.cut(a, linkDeaf, b, c)
		w.last()
	}},
	{"answers of a region are cut off half way, and it is killed then", func(w *regionWorld, a, b, c *regionServer) {
		w.cut(a, linkBroken, b, c)
		w.last()
		a.crash()
	}},
	{"a region is stopped in an orderly way", func(_ *regionWorld, a, _, _ *regionServer) { a.restart() }},
	{"a region pauses reading another one", func(w *regionWorld, a, b, _ *regionServer) {
		w.operate("pause", a.link.address(), b.name)
		w.last()
		w.operate("resume", a.link.address(), b.name)
	}},
	{"a region is cut off for so long that logs have a gap", (*regionWorld).gap},
	{"links of a region are silent for long, and nobody says when they are mended", (*regionWorld).silence}, // slow
	{"a region is lost for ever", (*regionWorld).lose},
	{"a region comes back from a backup", (*regionWorld).restoreOld},
}

// TestRegionFaults lets regions and their links fail while clients send every operation to two regions, at once and
// later, and set, delete and expire other counters. In the end all regions have the same, in which
// each operation counts once, and whoever sends one again is told the same everywhere, whatever happened. For 1000
// faults, which takes an hour:
//
//	go test ./integration_test -run TestRegionFaults -regions.faults 1000 -timeout 3h -v
//
// More regions are lost with -regions.lost. One that is slow is made if there are 14 faults or more, and at most once in 50.
func TestRegionFaults(t *testing.T) {
	t.Parallel()
	makeRegionFaults(t, nil, *regionFaultCount)
}

// TestRegionNetworkFaults is the same with regions in network namespaces, where packets are dropped, in one direction too, and
// nobody is told:
//
//	go test ./integration_test -run TestRegionNetworkFaults -regions.networkfaults 1000 -timeout 3h -v
func TestRegionNetworkFaults(t *testing.T) {
	t.Parallel()
	makeRegionFaults(t, newHosts(t, 3+*regionsLost), *regionNetworkFaultCount)
}

func makeRegionFaults(t *testing.T, h *hosts, count int) {
	seed := *regionFaultSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-regions.seed=%d", seed)
	w := newRegionWorld(t, rand.New(rand.NewPCG(seed, 0)), 0, "--region-backlog", "1mb")
	w.hosts = h
	for range 3 {
		w.join(w.start())
	}
	load, kinds, order, slow := startRegionLoad(w), regexp.MustCompile(*regionFaultKind), []int(nil), count/50
	if count >= len(regionFaults)-1 {
		slow++
	}
	for n := 0; n < count && !t.Failed(); n++ {
		if len(order) == 0 {
			order = w.rand.Perm(len(regionFaults))
		}
		f := regionFaults[order[0]]
		order = order[1:]
		if ends := strings.HasSuffix(f.kind, "ever") || strings.HasSuffix(f.kind, "backup"); !kinds.MatchString(f.kind) || ends && len(w.all)-3 >= *regionsLost {
			n--
			continue
		}
		if strings.Contains(f.kind, "for long") && *regionFaultKind == "" {
			if slow--; slow < 0 {
				n--
				continue
			}
		}
		of := w.living()
		w.rand.Shuffle(len(of), func(i, j int) { of[i], of[j] = of[j], of[i] })
		began := time.Now()
		f.make(w, of[0], of[1], of[2])
		w.heal()
		w.heard()
		t.Logf("%d: %s: %s, %s, %s; %v", n, f.kind, of[0].name, of[1].name, of[2].name, time.Since(began).Round(time.Millisecond))
	}
	load.end()
	w.agree()
	found := load.verify()
	t.Logf("%+v", found)
	if found.ops < 100 || found.twice == 0 {
		t.Errorf("too little happened: %+v", found)
	}
}

// last lets a fault last.
func (w *regionWorld) last() {
	time.Sleep(100*time.Millisecond + time.Duration(w.rand.IntN(500))*time.Millisecond)
}

// killWhileTaking cuts a region off from another one and, when it is back and has been sent some of what it lacks, kills it.
func (w *regionWorld) killWhileTaking(a, b, _ *regionServer) {
	w.cut(b, linkCut, a)
	w.last()
	w.answers(b, a, 100+w.rand.IntN(20_000), w.heal)
	a.kill()
	a.start()
}

// killWhileAnswering kills a region while what it has answered is under way.
func (w *regionWorld) killWhileAnswering(a, b, _ *regionServer) {
	w.answers(a, b, 1, func() {})
	a.kill()
	a.start()
}

// answers does something, and returns when a region is answering another one, which has so many bytes by then; or, if
// there is not so much, a second later.
func (w *regionWorld) answers(source, reader *regionServer, bytes int, do func()) {
	w.t.Helper()
	if w.hosts != nil { // nobody sees what is under way, but who has it says so before it takes that
		before := reader.peer(source).Bytes
		do()
		eventually(w.t, patience, reader.name+" is answered", func() bool { return reader.peer(source).Bytes > before })
		for end := time.Now().Add(time.Second); reader.peer(source).Bytes < before+int64(bytes) && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
		return
	}
	once, reached := sync.Once{}, make(chan struct{})
	source.link.watch(func(number, passed int) {
		if number == reader.number && passed >= bytes {
			once.Do(func() { close(reached) })
		}
	})
	defer source.link.watch(nil)
	do()
	select {
	case <-reached:
	case <-time.After(time.Second):
	}
}

// silence lets the links of a region lose all that is sent, for longer than a session or a connection waits or not. When they are
// mended nobody is told, and the regions find each other again by themselves.
func (w *regionWorld) silence(a, b, c *regionServer) {
	to := linkMute
	if w.hosts != nil {
		to = linkCut // in both directions; with a relay that would be told
	}
	w.cut(a, to, b, c)
	for _, r := range []*regionServer{b, c} {
		w.cut(r, to, a)
	}
	silent := time.Duration(5+w.rand.IntN(50)) * time.Second
	time.Sleep(silent)
	w.mend()
	mended := time.Now()
	w.heard() // within a minute
	w.t.Logf("silent for %v, and heard %v later", silent, time.Since(mended).Round(time.Millisecond))
}

// gap cuts a region off while another one logs more than it keeps for it.
func (w *regionWorld) gap(a, b, c *regionServer) {
	before := a.peer(b).StateExchanges
	w.apart(a, b, c)
	w.last()
	b.outgrowLog()
	w.heal()
	// Counters are shown before the state is at its end.
	eventually(w.t, patience, fmt.Sprintf("%s has taken the state of %s", a.name, b.name), func() bool { return a.peer(b).StateExchanges > before })
}

// outgrowLog has a region write, with keys as long as can be, until the log of what it wrote first is gone.
func (r *regionServer) outgrowLog() {
	r.t.Helper()
	files := func() []string {
		names, err := filepath.Glob(filepath.Join(r.dir, "log", "*.log")) // in their order
		if err != nil || len(names) == 0 {
			r.t.Fatal(names, err)
		}
		return names
	}
	n := 0
	write := func() {
		p := r.client.Pipeline()
		for i := range 100 {
			p.Set(context.Background(), fmt.Sprintf("long-%d-%060000d", i%16, r.number), n, 0)
			n++
		}
		if _, err := p.Exec(context.Background()); err != nil {
			r.t.Fatal(err)
		}
	}
	write() // who is cut off has not taken this
	last := slices.Max(files())
	for range 4 { // of the six that a file holds
		write()
	}
	eventually(r.t, patience, "the log is trimmed", func() bool {
		write()
		if err := r.client.Save(context.Background()).Err(); err != nil {
			r.t.Fatal(err)
		}
		return files()[0] > last
	})
}

// lose takes a region away for ever. What it was told last was sent to another one, too, so that it is not lost with it; its
// heir takes back what it still owes. An empty server joins.
func (w *regionWorld) lose(a, b, _ *regionServer) {
	a.lost.Store(true)
	a.kill()
	w.replace(a, b)
}

// replace removes a region that is lost, and has an empty server join.
func (w *regionWorld) replace(a, heir *regionServer) {
	w.t.Helper()
	w.operate("remove", heir.link.address(), a.name, "--heir", heir.name)
	w.join(w.start())
}

// restoreOld starts a region again from an old copy of its directory. The others refuse it, and it is removed.
func (w *regionWorld) restoreOld(a, b, c *regionServer) {
	old := w.t.TempDir()
	if out, code := fbfkv(w.t, w.login("backup", a.address(), old+"/copy")...); code != 0 {
		w.t.Fatalf("backup: %s", out)
	}
	w.last()
	a.lost.Store(true)
	a.kill()
	a.dir = old + "/restored"
	if out, code := fbfkv(w.t, "restore", old+"/copy", a.dir); code != 0 {
		w.t.Fatalf("restore: %s", out)
	}
	a.start()
	refusesWrites(w.t, "this directory was restored from a backup", a.server)
	region(w.t, 1, "this directory was restored from a backup", w.login("create", a.link.address(), a.name)...)
	region(w.t, 1, "this directory was restored from a backup", w.login("verify", a.link.address())...)
	for _, r := range []*regionServer{b, c} {
		eventually(w.t, patience, "status says that the region is another one now", func() bool {
			out, code := fbfkv(w.t, w.login("region", "status", r.link.address())...)
			return code != 0 && strings.Contains(out, "incarnation")
		})
	}
	w.replace(a, b)
	a.kill()
}
