package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// regionWorld is regions, each of them a real server of its own, that reach each other over links that may fail.
type regionWorld struct {
	t     testing.TB
	rand  *rand.Rand
	args  []string // of each server
	load  *regionLoad
	homes map[string]*regionServer // of the load's keys
	hosts *hosts                   // of the regions, by number; nil: this machine, and a relay before each

	mu    sync.Mutex
	all   []*regionServer // also those that are lost; by number
	marks int
}

// regionServer is one of them.
type regionServer struct {
	*server
	name   string
	number int
	link   *regionLink
	client *redis.Client
	ahead  int64       // of its clock, ms
	lost   atomic.Bool // for ever, or it was never one
}

// regionArgs are settings that all regions of the tests have.
var regionArgs = []string{"--partitions", "16"}

// Passwords of regions that others reach over a network: of clients, and of each other.
const (
	regionPassword     = "a password"
	regionPeerPassword = "another-one"
)

// newRegionWorld starts servers and makes them regions.
func newRegionWorld(t testing.TB, r *rand.Rand, n int, args ...string) *regionWorld {
	w := &regionWorld{t: t, rand: r, args: append(slices.Clone(regionArgs), args...), homes: make(map[string]*regionServer)}
	for range n {
		w.join(w.start())
	}
	return w
}

// start starts a server that will be the next region.
func (w *regionWorld) start(change ...func(*server)) *regionServer {
	w.t.Helper()
	n := len(w.all)
	r := &regionServer{name: fmt.Sprint("region-", n), number: n}
	r.server = &server{t: w.t, dir: w.t.TempDir(), args: w.args}
	for _, f := range change {
		f(r.server)
	}
	if r.link = (&regionLink{to: r.server}); w.hosts != nil {
		r.namespace, r.password = w.hosts.namespace(n), regionPassword
		r.args = append(slices.Clone(w.args), "--bind", w.hosts.address(n), "--port", "7000", "--requirepass", regionPassword,
			"--user", "peer on >"+regionPeerPassword+" +region.pull", "--region-user", "peer", "--region-password", regionPeerPassword)
	}
	r.start()
	w.t.Cleanup(r.cleanup)
	if w.hosts == nil {
		r.link = startRegionLink(w.t, r.server)
	}
	r.client = r.server.client(func(o *redis.Options) { o.PoolSize = 1000 })                       // so many refusals until it dials no more
	if out, err := redisAsk(r.server, "CTABLE", "ALTER", "default", "WINDOW", "24h"); err != nil { // longer than any test
		w.t.Fatal(out, err)
	}
	return r
}

// join makes a server the first region, or one more.
func (w *regionWorld) join(r *regionServer) {
	w.t.Helper()
	if living := w.living(); len(living) == 0 {
		w.operate("create", r.link.address(), r.name)
	} else {
		w.operate("join", r.link.address(), r.name, living[0].link.address())
	}
	w.mu.Lock()
	w.all = append(w.all, r)
	w.mu.Unlock()
}

// operate runs `fbfkv region` without asking, which must succeed.
func (w *regionWorld) operate(args ...string) string {
	w.t.Helper()
	if args[0] != "pause" && args[0] != "resume" {
		args = append(args, "--yes")
	}
	out, code := fbfkv(w.t, w.login("region", args...)...)
	if code != 0 {
		w.t.Fatalf("fbfkv region %q: exit status %d:\n%s", args, code, out)
	}
	return out
}

// login returns the arguments of a command that logs in, if regions want that.
func (w *regionWorld) login(command string, args ...string) []string {
	if args = append([]string{command}, args...); w.hosts != nil {
		args = append(args, "--requirepass", regionPassword)
	}
	return args
}

// living returns the regions that are not lost.
func (w *regionWorld) living() []*regionServer {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(w.all), func(r *regionServer) bool { return r.lost.Load() })
}

// pick returns one of the living regions, but none of those; by chance, if there is any.
func (w *regionWorld) pick(r *rand.Rand, but ...*regionServer) *regionServer {
	all := slices.DeleteFunc(w.living(), func(r *regionServer) bool { return slices.Contains(but, r) })
	if r == nil {
		return all[0]
	}
	return all[r.IntN(len(all))]
}

// sameClock reports whether two regions have the same clock.
func (w *regionWorld) sameClock(a, b *regionServer) bool { return a.ahead == b.ahead }

// pairs calls fn for each region that reads, and that which it reads.
func (w *regionWorld) pairs(fn func(reader, source *regionServer)) {
	for _, reader := range w.living() {
		for _, source := range w.living() {
			if reader != source {
				fn(reader, source)
			}
		}
	}
}

// heal mends all links, and has all regions look at once: by themselves they would, within a minute.
func (w *regionWorld) heal() {
	w.t.Helper()
	w.mend()
	w.resume()
}

// mend mends all links.
func (w *regionWorld) mend() {
	w.t.Helper()
	if w.hosts != nil {
		w.hosts.heal()
		return
	}
	w.pairs(func(reader, source *regionServer) { source.link.set(reader.number, linkOpen) })
}

func (w *regionWorld) resume() {
	w.t.Helper()
	w.pairs(func(reader, source *regionServer) {
		if out, err := redisAsk(reader.server, "REGION", "RESUME", source.name); err != nil {
			w.t.Errorf("REGION RESUME %s at %s: %s %v", source.name, reader.name, out, err)
		}
	})
}

// cut changes the links by which some regions read another one.
func (w *regionWorld) cut(source *regionServer, to linkState, readers ...*regionServer) {
	if w.hosts != nil {
		w.drop(source, to, readers)
		return
	}
	for _, r := range readers {
		source.link.set(r.number, to)
	}
}

// drop has packets of such links dropped, or of all links between these hosts. Nobody is told: connections stay, and those who wait
// send their packets again, more and more seldom.
func (w *regionWorld) drop(source *regionServer, to linkState, readers []*regionServer) {
	w.t.Helper()
	var numbers []int
	for _, r := range readers {
		numbers = append(numbers, r.number)
	}
	asked, answers := []string{"-p", "tcp", "--dport", source.port()}, []string{"-p", "tcp", "--sport", source.port()}
	if w.rand.IntN(2) == 0 {
		asked, answers = nil, nil
		w.t.Logf("%s: between hosts, not only of links that are read", source.name)
	}
	if to == linkBroken {
		answers = append(answers, "-m", "statistic", "--mode", "random", "--probability", "0.5")
	}
	if to == linkCut || to == linkMute {
		w.hosts.drop(source.number, "INPUT", "-s", numbers, asked...)
	}
	if to != linkMute {
		w.hosts.drop(source.number, "OUTPUT", "-d", numbers, answers...)
	}
}

// apart cuts regions off from each other, both ways.
func (w *regionWorld) apart(a *regionServer, others ...*regionServer) {
	w.cut(a, linkCut, others...)
	for _, b := range others {
		w.cut(b, linkCut, a)
	}
}

// but returns the other living regions.
func (w *regionWorld) but(a *regionServer) []*regionServer {
	return slices.DeleteFunc(w.living(), func(b *regionServer) bool { return a == b })
}

// heard returns when every region has heard all that the others had done when it was called: a mark is made
// everywhere, in each partition, and seen everywhere.
func (w *regionWorld) heard() {
	w.t.Helper()
	w.marks++
	mark := func(r *regionServer, key string) string { return fmt.Sprintf("mark-{%s}-%d-%s", key, w.marks, r.name) }
	for _, r := range w.living() {
		p := r.client.Pipeline()
		for _, key := range evenKeys() {
			p.Incr(context.Background(), mark(r, key))
		}
		if _, err := p.Exec(context.Background()); err != nil {
			w.t.Fatalf("%s: %v", r.name, err)
		}
	}
	w.pairs(func(reader, source *regionServer) {
		eventually(w.t, patience, fmt.Sprintf("%s has heard all of %s", reader.name, source.name), func() bool {
			p := reader.client.Pipeline()
			for _, key := range evenKeys() {
				p.Get(context.Background(), mark(source, key))
			}
			_, err := p.Exec(context.Background())
			if err != nil && !errors.Is(err, redis.Nil) {
				w.t.Fatalf("%s: %v", reader.name, err)
			}
			return err == nil
		})
	})
}

// agree waits until all regions have the same, while nobody changes anything.
func (w *regionWorld) agree() {
	w.t.Helper()
	w.heard() // of all operations, and so they are taken back that others have applied first
	w.heard() // of that
	for end := time.Now().Add(patience); ; {
		out, code := fbfkv(w.t, w.login("region", "verify", w.living()[0].link.address())...)
		if code == 0 {
			return
		}
		if time.Now().After(end) {
			w.t.Fatalf("fbfkv region verify: exit status %d:\n%s", code, out)
		}
	}
}

// regionStatus is some of what REGION STATUS says.
type regionStatus struct {
	Operations struct {
		Twins     int64 `json:"twins"`
		TakenBack int64 `json:"taken_back"`
		Unchecked int64 `json:"unchecked"`
	} `json:"operations"`
	Peers []regionPeer `json:"peers"`
}

type regionPeer struct {
	Name           string `json:"name"`
	Bytes          int64  `json:"bytes"`
	StateExchanges int64  `json:"state_exchanges"`
}

func (r *regionServer) status() (s regionStatus) {
	r.t.Helper()
	text, err := redisAsk(r.server, "REGION", "STATUS")
	if err == nil {
		err = json.Unmarshal([]byte(text), &s)
	}
	if err != nil {
		r.t.Fatalf("REGION STATUS at %s: %s %v", r.name, text, err)
	}
	return s
}

// peer is what a region says of how it reads another one.
func (r *regionServer) peer(of *regionServer) (p regionPeer) {
	r.t.Helper()
	all := r.status().Peers
	i := slices.IndexFunc(all, func(p regionPeer) bool { return p.Name == of.name })
	if i < 0 {
		r.t.Fatalf("%s does not read %s", r.name, of.name)
	}
	return all[i]
}
