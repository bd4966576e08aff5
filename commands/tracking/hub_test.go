package tracking

import (
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// outside is a World in the hands of a test.
type outside struct {
	tell    func(key []byte, source int64)
	changed chan struct{}
	stale   atomic.Bool
}

func (o *outside) world() World {
	return World{
		Tell:    func(to func([]byte, int64)) { o.tell = to },
		Changed: func() <-chan struct{} { o.changed = make(chan struct{}); return o.changed },
		Stale:   func() bool { return o.stale.Load() },
	}
}

// listener is a client, and the messages that it got since the last look.
type listener struct {
	Client
	got  []string
	gate chan struct{} // Send waits for it; nil: it does not
}

func newListener(own int64, prefixes ...string) *listener {
	l := &listener{Client: Client{Own: own, May: func([]byte) bool { return true }}}
	for _, p := range prefixes {
		l.Prefixes = append(l.Prefixes, []byte(p))
	}
	l.Send = func(m []byte) {
		if l.gate != nil {
			<-l.gate
		}
		l.got = append(l.got, shown(m))
	}
	return l
}

// shown renders a message as the words of its keys.
func shown(m []byte) string {
	if string(m) == string(All) {
		return "all"
	}
	var words []string
	for i, line := range strings.Split(string(m), "\r\n") {
		if i > 3 && i%2 == 1 {
			words = append(words, line)
		}
	}
	return strings.Join(words, " ")
}

func (l *listener) expect(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	if strings.Join(l.got, ",") != strings.Join(want, ",") {
		t.Errorf("told %q, want %q", l.got, want)
	}
	l.got = nil
}

// TestHub: a message for each look, of the keys that a client asked for and may know.
func TestHub(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h Hub
		var o outside
		w := o.world()
		every, some, own, none := newListener(0, ""), newListener(0, "a:", "b:"), newListener(7, ""), newListener(0, "")
		none.May = func(key []byte) bool { return string(key) == "free" }
		for _, l := range []*listener{every, some, own, none} {
			h.Join(&l.Client, w)
		}
		note := func(source int64, keys ...string) {
			for _, k := range keys {
				o.tell([]byte(k), source)
			}
		}
		every.gate = make(chan struct{}) // the goroutine does not look meanwhile
		note(7, "x")
		synctest.Wait()
		note(0, "a:1", "c:1", "free")
		note(7, "a:1", "mine", "b:1")
		note(8, "b:1")
		close(every.gate)
		every.expect(t, "x", "a:1 c:1 free mine b:1")
		some.expect(t, "a:1 b:1")
		own.expect(t, "a:1 c:1 free b:1")
		none.expect(t, "free")

		note(7, "k")
		every.expect(t, "k")
		own.expect(t)
		o.tell(nil, 0)
		for _, l := range []*listener{every, some, own, none} {
			l.expect(t, "all")
		}
		long := strings.Repeat("k", 1<<20)
		every.gate = make(chan struct{})
		note(0, "first")
		synctest.Wait()
		note(0, long, long, long, long, "last", "later")
		close(every.gate)
		every.expect(t, "first", "all")
		some.expect(t, "all")

		every.gate = make(chan struct{})
		note(0, "first")
		synctest.Wait()
		for range maxNoted/16 + 2 {
			note(0, "") // they take memory, too
		}
		close(every.gate)
		every.expect(t, "first", "all")

		close(o.changed)
		every.expect(t, "all")
		close(o.changed)
		every.expect(t, "all")
		time.Sleep(10 * staleEvery)
		every.expect(t)
		o.stale.Store(true)
		time.Sleep(2 * staleEvery)
		every.expect(t, "all", "all")
		o.stale.Store(false)

		for _, l := range []*listener{every, some, own} {
			h.Leave(&l.Client, w)
		}
		if o.tell == nil || h.Clients() != 1 {
			t.Error("the last client is told nothing")
		}
		h.Leave(&none.Client, w)
		if o.tell != nil || h.Clients() != 0 {
			t.Error("nobody is left, and is told")
		}
		h.Join(&every.Client, w)
		note(0, "again")
		every.expect(t, "again")
		h.Leave(&every.Client, w)
	})
}
