package integration

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// sceneKeys is how many counters the scenes below have.
const sceneKeys = 40

// eachOnce counts 5 with the opid x on each of some counters, at some regions.
func eachOnce(t *testing.T, prefix string, at ...*regionServer) {
	t.Helper()
	for _, r := range at {
		p := r.client.Pipeline()
		for i := range sceneKeys {
			p.Do(context.Background(), "CINCRBY", fmt.Sprint(prefix, i), "x", 5)
		}
		if _, err := p.Exec(context.Background()); err != nil {
			t.Fatalf("%s: %v", r.name, err)
		}
	}
}

// sums returns what each region has of these counters in all, which must be the same.
func (w *regionWorld) sums(prefix string) (sum int64) {
	w.t.Helper()
	for i, r := range w.living() {
		p, here := r.client.Pipeline(), int64(0)
		for i := range sceneKeys {
			p.Get(context.Background(), fmt.Sprint(prefix, i))
		}
		answers, err := p.Exec(context.Background())
		if err != nil && !errors.Is(err, redis.Nil) {
			w.t.Fatalf("%s: %v", r.name, err)
		}
		for _, a := range answers {
			v, _ := a.(*redis.StringCmd).Int64()
			here += v
		}
		if i > 0 && here != sum {
			w.t.Errorf("%s has %d in all, and %s %d", r.name, here, w.living()[0].name, sum)
		}
		sum = here
	}
	return sum
}

// shortTable makes a table with the shortest window that there is, in all regions.
func (w *regionWorld) shortTable() {
	w.t.Helper()
	for _, r := range w.living() {
		if out, err := redisAsk(r.server, "CTABLE", "CREATE", "short", "PREFIX", "short:", "WINDOW", "1s"); err != nil {
			w.t.Fatal(out, err)
		}
	}
}

// forgotten returns when a region remembers none of the opids x.
func (r *regionServer) forgotten(prefix string) {
	r.t.Helper()
	for i := range sceneKeys {
		eventually(r.t, patience, r.name+" has forgotten what clients sent", func() bool {
			return errors.Is(r.client.Do(context.Background(), "CSEEN", fmt.Sprint(prefix, i), "x").Err(), redis.Nil)
		})
	}
}

// TestRegionWindow cuts two regions off from each other for longer than the window of their table. What both have
// applied meanwhile counts once in the end.
func TestRegionWindow(t *testing.T) {
	t.Parallel()
	w := newRegionWorld(t, rand.New(rand.NewPCG(1, 1)), 3)
	a, b, c := w.all[0], w.all[1], w.all[2]
	w.shortTable()
	w.apart(a, b)
	eachOnce(t, "short:", a, b)
	eventually(t, patience, "the third region shows both", func() bool { return c.client.Get(context.Background(), "short:0").Val() == "10" })
	c.forgotten("short:") // which heard of it later
	w.heal()
	w.agree()
	if sum := w.sums("short:"); sum != 5*sceneKeys {
		t.Errorf("the sum is %d, want %d", sum, 5*sceneKeys)
	}
	if n := a.status().Operations.TakenBack + b.status().Operations.TakenBack; n != sceneKeys {
		t.Errorf("%d operations were taken back, want %d", n, sceneKeys)
	}
}

// TestRegionRetention cuts a region off for so long that ids are given up. All regions become the same nevertheless, and
// they count what they could not compare.
func TestRegionRetention(t *testing.T) {
	t.Parallel()
	w := newRegionWorld(t, rand.New(rand.NewPCG(1, 2)), 2, "--region-retention", "1")
	a, b := w.all[0], w.all[1]
	w.shortTable()
	w.apart(a, b)
	eachOnce(t, "short:", a, b)
	for _, r := range w.all {
		r.forgotten("short:")
		eventually(t, patience, "records are given up", func() bool {
			eachOnce(t, fmt.Sprint("other:", time.Now()), r) // so that there are new records to write
			if err := r.client.Save(context.Background()).Err(); err != nil {
				t.Fatal(err)
			}
			return r.status().Operations.Unchecked > 0
		})
	}
	w.heal()
	w.agree()
	twice, unchecked := w.sums("short:")/5-sceneKeys, a.status().Operations.Unchecked+b.status().Operations.Unchecked
	t.Logf("%d of %d operations count twice; %d were not compared", twice, sceneKeys, unchecked)
	if twice < 1 || twice > unchecked {
		t.Errorf("%d operations count twice, and %d were not compared", twice, unchecked)
	}
	out, code := fbfkv(t, "region", "status", a.link.address())
	if code == 0 {
		t.Errorf("status says that all is well:\n%s", out)
	}
	for _, more := range [][]string{{"--acknowledge"}, nil} {
		if out, code := fbfkv(t, append([]string{"region", "status", a.link.address()}, more...)...); code != 0 || !strings.Contains(out, "may count twice (acknowledged)") {
			t.Errorf("acknowledged, status %q has exit status %d:\n%s", more, code, out)
		}
	}
}

// TestRegionClocks has the clocks of regions differ by minutes, while links fail and a region is killed.
func TestRegionClocks(t *testing.T) {
	t.Parallel()
	armed := buildWithKillPoints(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	w := newRegionWorld(t, rand.New(rand.NewPCG(seed, 0)), 0)
	for _, minutes := range []int64{0, 3, -3} {
		r := w.start(func(s *server) {
			s.program, s.env = armed, []string{fmt.Sprint("FBFKV_CLOCK_AHEAD=", minutes*60_000)}
		})
		r.ahead = minutes * 60_000
		w.join(r)
	}
	load := startRegionLoad(w)
	for i, r := range w.all {
		w.apart(r, w.but(r)...)
		w.last()
		if i == 1 {
			r.crash()
		}
		w.heal()
		w.heard()
	}
	load.end()
	w.agree()
	if found := load.verify(); found.twice == 0 {
		t.Errorf("nothing was applied twice: %+v", found)
	}
}

// TestRegionFlush deletes everything everywhere: counters and opids.
func TestRegionFlush(t *testing.T) {
	t.Parallel()
	w := newRegionWorld(t, rand.New(rand.NewPCG(1, 3)), 3)
	a, b, c := w.all[0], w.all[1], w.all[2]
	eachOnce(t, "k", a, b)
	w.heard()
	if err := c.client.FlushAll(context.Background()).Err(); err == nil {
		t.Error("FLUSHALL is not refused")
	}
	w.cut(b, linkCut, c)
	w.operate("flush", b.link.address())
	w.heal()
	for _, r := range w.all {
		eventually(t, patience, "everything is deleted", func() bool { return r.client.DBSize(context.Background()).Val() == 0 })
	}
	eachOnce(t, "k", c, b, a)
	w.agree()
	if sum := w.sums("k"); sum != 5*sceneKeys {
		t.Errorf("the sum is %d, want %d", sum, 5*sceneKeys)
	}
}

// TestRegionLeaves: a region is removed while clients count in it, and one of the others hears nothing of it. It is waited for, so
// that the sum of what was acknowledged is there afterwards; if it is not waited for long enough, nothing is removed.
func TestRegionLeaves(t *testing.T) {
	t.Parallel()
	w := newRegionWorld(t, rand.New(rand.NewPCG(1, 2)), 3)
	a, b, c := w.all[2], w.all[0], w.all[1]
	remove := []string{"remove", b.link.address(), a.name, "--heir", b.name}
	acknowledged := int64(0)
	count := func(enough func(i int) bool) (refused error) {
		for i := 0; refused == nil && !enough(i); i++ {
			p := a.client.Pipeline()
			for j := range 50 {
				p.Do(context.Background(), "CINCRBY", fmt.Sprint("k", j%sceneKeys), fmt.Sprint("op", acknowledged, "-", j), 1)
			}
			answers, _ := p.Exec(context.Background())
			for _, answer := range answers {
				if refused = errors.Join(refused, answer.Err()); answer.Err() == nil {
					acknowledged++
				}
			}
		}
		return refused
	}
	some := func(i int) bool { return i == 10 }
	if err := count(some); err != nil {
		t.Fatal(err)
	}
	w.agree()
	for _, r := range []*regionServer{b, c} {
		a.link.set(r.number, linkMute)
	}
	if err := count(some); err != nil {
		t.Fatal(err)
	}
	out := region(t, 1, a.name+": takes writes again", append(remove, "--patience", "200ms")...)
	for _, want := range []string{
		"The region region-2 refuses writes from now on, and is removed when the others have all that it has counted.",
		"nothing was removed: region-0 has not taken ", "region-1 has not taken ", "--lost",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("it does not say %q:\n%s", want, out)
		}
	}
	refused := make(chan error)
	go func() { refused <- count(func(int) bool { return false }) }()
	done := make(chan string)
	go func() { done <- region(t, 0, "region-0: looks after what region-2 has counted", remove...) }()
	if err := <-refused; !strings.Contains(err.Error(), "READONLY nothing was applied: this region is being removed") {
		t.Errorf("refused: %v", err)
	}
	region(t, 1, "this region is being removed", "status", a.link.address())
	for _, r := range []*regionServer{b, c} {
		a.link.set(r.number, linkOpen)
	}
	<-done
	a.lost.Store(true)
	if sum := w.sums("k"); sum != acknowledged {
		t.Errorf("%d in all, and %d were acknowledged", sum, acknowledged)
	}
	w.join(w.start())
	c.kill()
	region(t, 1, "remove it as well, if it is lost; or remove it at once with --lost", "remove", b.link.address(), "region-3", "--heir", b.name)
	region(t, 0, "region-0: looks after what region-1 has counted", "remove", b.link.address(), "region-3", c.name, "--heir", b.name)
	c.lost.Store(true)
}
