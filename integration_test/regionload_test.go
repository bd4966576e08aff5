package integration

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// regionLoad is clients that count in regions, each operation in two of them: at once, or as a retry of what
// the first one has answered, or has not. They also set, delete and expire counters that nobody else uses,
// at one region each, and count there with retries elsewhere.
type regionLoad struct {
	t     testing.TB
	world *regionWorld
	stop  chan struct{}
	wait  sync.WaitGroup

	mu    sync.Mutex
	ops   []*regionOp
	owned map[string]*ownedKey
	gone  []string // keys that have expired, or will soon
}

// regionOp is an operation with an opid.
type regionOp struct {
	key, id string
	delta   int64
	told    []int64 // what regions said when they applied it
	unsure  bool    // a region may have applied it without an answer
	shared  bool    // its key is one that is only counted
}

// ownedKey is a counter that one client changes at one region.
type ownedKey struct {
	value   int64
	expires int64 // unix ms; -1: never; 0: not compared, as a twin may keep a deleted key alive, with or without its expiry
	lost    bool  // with its region: nobody knows what was told before that
	ops     []*regionOp
}

// What the load has.
const (
	sharedRegionKeys  = 12
	ownedRegionKeys   = 3 // of each client
	regionLoadClients = 4
)

// startRegionLoad starts clients of the regions that live.
func startRegionLoad(w *regionWorld) *regionLoad {
	l := &regionLoad{t: w.t, world: w, stop: make(chan struct{}), owned: make(map[string]*ownedKey)}
	w.load = l
	for n := range regionLoadClients {
		seed := w.rand.Uint64()
		l.wait.Go(func() { l.run(n, rand.New(rand.NewPCG(seed, 0))) })
	}
	w.t.Cleanup(l.end)
	return l
}

// end returns when every operation is answered by two regions.
func (l *regionLoad) end() {
	l.mu.Lock()
	if l.stop != nil {
		close(l.stop)
		l.stop = nil
	}
	l.mu.Unlock()
	l.wait.Wait()
}

// run is one client.
func (l *regionLoad) run(n int, r *rand.Rand) {
	stop := l.stop
	for i := 0; ; i++ {
		select {
		case <-stop:
			for i := range ownedRegionKeys {
				l.again(r, ownedKeyName(n, i))
			}
			return
		case <-time.After(time.Duration(r.IntN(6)) * time.Millisecond):
		}
		id := fmt.Sprintf("%d-%d", n, i)
		switch p := r.IntN(10); {
		case p < 6:
			l.count(r, &regionOp{key: fmt.Sprint("shared-", r.IntN(sharedRegionKeys)), id: id, delta: r.Int64N(100) - 20, shared: true})
		case p < 9:
			l.own(r, ownedKeyName(n, r.IntN(ownedRegionKeys)), id)
		default:
			l.expire(r, fmt.Sprintf("short-%d-%d", n, i), id)
		}
	}
}

// count sends an operation to two regions.
func (l *regionLoad) count(r *rand.Rand, op *regionOp, more ...any) {
	l.note(op)
	var twice sync.WaitGroup
	one := l.world.pick(r)
	two := l.world.pick(r, one)
	switch r.IntN(3) {
	case 0: // at once
		twice.Go(func() { l.send(one, op, more...) })
	case 1: // without waiting for an answer
		if ok, _ := l.try(one, op, more...); ok {
			break
		}
		fallthrough
	default:
		l.send(one, op, more...)
	}
	l.send(two, op, more...)
	twice.Wait()
}

func (l *regionLoad) note(op *regionOp) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ops = append(l.ops, op)
}

// send sends an operation to a region until that answers; if it is lost, to another one.
func (l *regionLoad) send(to *regionServer, op *regionOp, more ...any) {
	for end := time.Now().Add(4 * patience); ; time.Sleep(10 * time.Millisecond) {
		if to.lost.Load() {
			to = l.world.pick(nil, to)
		}
		ok, err := l.try(to, op, more...)
		if ok {
			return
		}
		if time.Now().After(end) {
			l.t.Errorf("%s %s at %s: %v", op.key, op.id, to.name, err)
			return
		}
	}
}

// try sends an operation once, and reports whether it was answered.
func (l *regionLoad) try(to *regionServer, op *regionOp, more ...any) (ok bool, err error) {
	args := append([]any{"CINCRBY", op.key, op.id, op.delta, "WITHSTATUS"}, more...)
	answer, err := to.client.Do(context.Background(), args...).Slice()
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		var said redis.Error
		if errors.As(err, &said) && !strings.HasPrefix(said.Error(), "LOADING") {
			l.t.Errorf("%v at %s: %v", args, to.name, err)
			return true, err
		}
		op.unsure = true
		return false, err
	}
	if answer[1].(int64) == 1 {
		op.told = append(op.told, answer[0].(int64))
	}
	return true, nil
}

func ownedKeyName(client, n int) string { return fmt.Sprintf("own-%d-%d", client, n) }

// own changes a counter that only this client changes, at the region that it chose for it, and no other.
func (l *regionLoad) own(r *rand.Rand, key, id string) {
	home, k := l.home(r, key)
	if home == nil {
		l.again(r, key)
		return
	}
	op := &regionOp{key: key, id: id, delta: r.Int64N(50) + 1}
	far := time.Now().Add(time.Hour + time.Duration(r.IntN(1000))*time.Second).UnixMilli()
	var err error
	switch r.IntN(12) {
	case 0:
		if err = l.until(home, "DEL", key); err == nil {
			k.value, k.expires = 0, 0
		}
	case 1:
		if err = l.until(home, "SET", key, op.delta); err == nil {
			k.value, k.expires = op.delta, 0
		}
	case 2:
		if k.value == 0 {
			return // perhaps it does not exist
		}
		if err = l.until(home, "PEXPIREAT", key, far); err == nil {
			k.expires = far
		}
	case 3:
		if err = l.until(home, "PERSIST", key); err == nil && k.expires != 0 {
			k.expires = -1
		}
	default:
		l.note(op)
		k.ops = append(k.ops, op)
		for ok := false; !ok && err == nil; {
			if ok, err = l.try(home, op); !ok {
				err = l.wakes(home)
			}
		}
		if k.value += op.delta; err != nil {
			break
		}
		// The retry comes in a later millisecond, so that it never ranks first: a deletion at home may not
		// have seen it.
		if r.IntN(2) == 0 {
			time.Sleep(2 * time.Millisecond)
			if other := l.world.pick(r, home); l.world.sameClock(home, other) || l.knows(other, op) {
				l.send(other, op)
			}
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	k.lost = k.lost || err != nil
}

// again sends to other regions what that was sent which is lost now: it may have told nobody.
func (l *regionLoad) again(r *rand.Rand, key string) {
	l.mu.Lock()
	k := l.owned[key]
	if k != nil {
		k.lost = k.lost || l.world.homes[key].lost.Load()
	}
	l.mu.Unlock()
	if k == nil || !k.lost {
		return
	}
	for _, op := range k.ops {
		l.send(l.world.pick(r), op)
	}
	k.ops = nil
}

// home returns the region at which a key is changed, and what is known of the key; no region: it was lost with
// that.
func (l *regionLoad) home(r *rand.Rand, key string) (*regionServer, *ownedKey) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.owned[key]
	if k == nil {
		k = &ownedKey{expires: -1}
		l.owned[key] = k
		l.world.homes[key] = l.world.pick(r)
	}
	home := l.world.homes[key]
	if k.lost = k.lost || home.lost.Load(); k.lost {
		return nil, k
	}
	return home, k
}

// errRegionLost: whoever waits for an answer of a region waits in vain.
var errRegionLost = errors.New("the region is lost")

// wakes waits before a region is asked again.
func (l *regionLoad) wakes(to *regionServer) error {
	time.Sleep(10 * time.Millisecond)
	if to.lost.Load() {
		return errRegionLost
	}
	return nil
}

// until sends a command that may be repeated until a region answers.
func (l *regionLoad) until(to *regionServer, args ...any) error {
	for {
		err := to.client.Do(context.Background(), args...).Err()
		var said redis.Error
		if err == nil || errors.As(err, &said) {
			return err
		}
		if err := l.wakes(to); err != nil {
			return err
		}
	}
}

// knows reports whether a region has heard of an operation.
func (l *regionLoad) knows(r *regionServer, op *regionOp) bool {
	return r.client.Do(context.Background(), "CSEEN", op.key, op.id).Err() == nil
}

// expire counts in two regions on a key that expires soon.
func (l *regionLoad) expire(r *rand.Rand, key, id string) {
	op := &regionOp{key: key, id: id, delta: 1}
	l.mu.Lock()
	l.gone = append(l.gone, key)
	l.mu.Unlock()
	l.count(r, op, "PX", 300)
}

// regionFound is what a load found in the end.
type regionFound struct {
	ops, twice, unsure, owned, lost int
}

// verify compares all regions with what clients were told: each operation counts once, and whoever sends it
// again is told, in every region, what the client was told whose operation it is that counts.
func (l *regionLoad) verify() (found regionFound) {
	l.t.Helper()
	sums, keys := make(map[string]int64), []string(nil)
	for _, op := range l.ops {
		if found.ops++; len(op.told) > 1 {
			found.twice++
		}
		if op.unsure {
			found.unsure++
		}
		if op.shared {
			sums[op.key] += op.delta
		}
	}
	for key, k := range l.owned {
		keys = append(keys, key)
		if found.owned++; k.lost {
			found.lost++
			continue
		}
		sums[key] = k.value
	}
	living := l.world.living()
	for _, r := range living {
		for key, want := range sums {
			got, err := r.client.Get(context.Background(), key).Int64()
			if err != nil && !errors.Is(err, redis.Nil) {
				l.t.Fatal(err)
			}
			if got != want {
				l.t.Errorf("%s: %s is %d, want %d: off by %d", r.name, key, got, want, got-want)
			}
		}
		for _, key := range l.gone {
			eventually(l.t, patience, key+" has expired at "+r.name, func() bool {
				return r.client.Exists(context.Background(), key).Val() == 0
			})
		}
	}
	l.sameExpiries(living, keys)
	l.sameRecords(living)
	return found
}

// sameExpiries compares whether owned keys exist, and when they expire.
func (l *regionLoad) sameExpiries(living []*regionServer, keys []string) {
	l.t.Helper()
	for _, key := range keys {
		k, first := l.owned[key], ""
		for _, r := range living {
			value, err := r.client.Get(context.Background(), key).Result()
			at, expiryErr := r.client.Do(context.Background(), "PEXPIRETIME", key).Int64()
			got := fmt.Sprint(value, err, at, expiryErr)
			if first == "" {
				first = got
			}
			if got != first {
				l.t.Errorf("%s has %s %s, and %s has %s", r.name, key, got, living[0].name, first)
			}
			if !k.lost && k.expires != 0 && k.value != 0 && at != k.expires {
				l.t.Errorf("%s: %s expires at %d, want %d", r.name, key, at, k.expires)
			}
		}
	}
}

// sameRecords asks every region for every operation, and sends it again.
func (l *regionLoad) sameRecords(living []*regionServer) {
	l.t.Helper()
	first, bad := make([]string, len(l.ops)), 0
	for _, r := range living {
		for at := 0; at < len(l.ops); at += 200 {
			ops, p := l.ops[at:min(at+200, len(l.ops))], r.client.Pipeline()
			for _, op := range ops {
				p.Do(context.Background(), "CSEEN", op.key, op.id)
				p.Do(context.Background(), "CINCRBY", op.key, op.id, op.delta, "WITHSTATUS")
			}
			answers, err := p.Exec(context.Background())
			if err != nil && !errors.Is(err, redis.Nil) {
				l.t.Fatalf("%s: %v", r.name, err)
			}
			for i, op := range ops {
				seen, _ := answers[2*i].(*redis.Cmd).Slice()
				again, _ := answers[2*i+1].(*redis.Cmd).Slice()
				got := fmt.Sprint(seen, again)
				if first[at+i] == "" {
					first[at+i] = got
				}
				if wrong := op.wrong(seen, again); (wrong != "" || got != first[at+i]) && bad < 10 {
					bad++
					l.t.Errorf("%s: %s %s: %s; %s says %s. Regions that applied it said %v. %s",
						r.name, op.key, op.id, got, living[0].name, first[at+i], op.told, wrong)
				}
			}
		}
	}
}

// wrong says what is wrong with what CSEEN answers of an operation, and with the answer when it is sent again.
func (op *regionOp) wrong(seen, again []any) string {
	switch {
	case len(seen) < 3 || len(again) != 2:
		return "it is not remembered"
	case seen[0] != op.delta || seen[1] != again[0]:
		return "it is remembered as another one"
	case again[1] != int64(0):
		return "it was applied again"
	case !op.unsure && !slices.Contains(op.told, again[0].(int64)):
		return "no region told a client so"
	}
	return ""
}
