package regions

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fbfkv/fbfkv/resp"
	"github.com/fbfkv/fbfkv/store"
	"github.com/fbfkv/fbfkv/store/part"
)

// asked counts what a region asks for logs, and may keep it from the source.
type asked struct {
	mu             sync.Mutex
	dials, all, on int // on: they continue another one
	lost           bool
}

func (k *asked) dial(ctx context.Context, address string) (net.Conn, error) {
	k.mu.Lock()
	k.dials++
	k.mu.Unlock()
	c, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	return askedConn{c, k}, err
}

type askedConn struct {
	net.Conn
	*asked
}

func (c askedConn) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all += bytes.Count(b, []byte("\r\nBLOCK\r\n"))
	if c.on += bytes.Count(b, []byte("\r\nNEXT\r\n")); c.lost {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// TestAhead: what is done just after an answer left is told without another request.
func TestAhead(t *testing.T) {
	k := new(asked)
	a, b := two(t, func(o *Options) { o.Dial, o.soon = k.dial, time.Minute })
	for i := range 2 { // the first one may be in a state
		a.once("k", fmt.Sprint("x", i), 1)
		eventually(t, "b has taken it", func() bool { return b.value("k") == int64(i)+1 })
	}
	eventually(t, "some requests are under way", func() bool {
		k.mu.Lock()
		defer k.mu.Unlock()
		return k.all-int(b.of(0).Pulls) == underWay
	})
	k.mu.Lock()
	k.lost = true
	k.mu.Unlock()
	for i := range underWay {
		a.once("k", fmt.Sprint(i), 1)
		eventually(t, "b has taken it", func() bool { return b.value("k") == int64(i)+3 })
	}
	eventually(t, "b has noted what it has taken", func() bool { return b.of(0).LagOps == 0 })
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.dials != 1 {
		t.Errorf("%d connections", k.dials)
	}
}

// TestFailsAhead: when what one answer brought cannot be taken, nothing of those behind it is, and
// the region is asked afresh; after that ahead again.
func TestFailsAhead(t *testing.T) {
	for name, spoil := range map[string]func(a *answer){
		"damaged":    func(a *answer) { a.data[0] ^= 0xff },
		"not it all": func(a *answer) { a.data = nil },
		"an error":   func(a *answer) { a.data, a.err = nil, "ERR no" },
		"a gap":      func(a *answer) { a.data, a.err = nil, "GAP no" },
		"refused":    func(a *answer) { a.data, a.err = nil, "REFUSED no" },
	} {
		t.Run(name, func(t *testing.T) {
			all := newRegions(t, 4, 2)
			a, b, k := all[0], all[1], new(asked)
			var spoilt atomic.Bool
			change := func(args [][]byte, reply []byte) []byte {
				r := answerReader{r: bufio.NewReader(bytes.NewReader(reply))}
				h, answers, err := r.read(&Request{Most: 1 << 20,
					Ranges: []Range{{First: 0}, {First: 4096}, {First: 8192}, {First: 12288}}})
				if err != nil || len(answers) == 0 || !isWord(args, wordNext) || spoilt.Swap(true) {
					return reply
				}
				spoil(&answers[0])
				var w resp.Writer
				w.Array(answerHead + answerParts*len(answers))
				w.Int(h.clock)
				w.Int(int64(h.version))
				for i := range answers {
					answers[i].write(&w)
				}
				return w.Bytes()
			}
			a.server.change.Store(&change)
			b.start(map[part.Region]string{0: a.server.address()}, func(o *Options) { o.Dial = k.dial })
			for i := range 100 { // of keys in all partitions
				a.once(fmt.Sprint("k", i%10), fmt.Sprint(i), 1)
			}
			eventually(t, "b has taken all", func() bool {
				sum := int64(0)
				for i := range 10 {
					sum += b.value(fmt.Sprint("k", i))
				}
				return sum == 100
			})
			k.mu.Lock()
			on := k.on
			k.mu.Unlock()
			for i := 0; ; i++ {
				a.once("k0", fmt.Sprint("again", i), 1)
				eventually(t, "b has taken it", func() bool { return b.value("k0") == int64(i)+11 })
				k.mu.Lock()
				now := k.on
				if k.mu.Unlock(); now >= on+2*underWay {
					break
				}
			}
			eventually(t, "b has noted what it has taken", func() bool {
				s := b.of(0)
				return !s.Failing && s.LagOps == 0
			})
			if k.mu.Lock(); k.dials > 3 || !spoilt.Load() {
				t.Errorf("%d connections, an answer was spoilt: %v", k.dials, spoilt.Load())
			}
			k.mu.Unlock()
			for i := range 100 {
				if op := b.once(fmt.Sprint("k", i%10), fmt.Sprint(i), 1); op.Err != nil || op.Applied {
					t.Errorf("operation %d is applied twice: %+v", i, op)
				}
			}
		})
	}
}

// TestAcknowledgesAhead: while a region asks ahead it acknowledges, so that the source gives up its log.
func TestAcknowledgesAhead(t *testing.T) {
	all := newRegions(t, 1, 1)
	a, b, k := all[0], all[1], new(asked)
	a.close()
	a.logFile = 1 << 10
	a.open()
	b.start(map[part.Region]string{0: a.server.address()}, func(o *Options) {
		o.Dial, o.soon = k.dial, time.Minute
	})
	n := int64(0)
	work := func() { // enough for a file of the log
		for range 50 {
			n++
			a.once("k", fmt.Sprint("a longer name of an operation that is number", n), 1)
		}
	}
	work()
	eventually(t, "b has taken it", func() bool { return b.value("k") == n })
	behind := a.s.CommittedOf(0) - 10
	pull := store.Pull{By: 1, Group: 77, Incarnation: a.s.Meta().Incarnation, Last: slots - 1, After: behind}
	eventually(t, "a has given up what b has", func() bool {
		work() // the log reaches back to the snapshot before
		must(t, a.s.Snapshot())
		_, err := a.s.Pull(pull)
		return isGap(err)
	})
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.dials != 1 || k.on < k.all-3 { // the log as it was before there were others is no log for them
		t.Errorf("%d connections, %d requests, %d of them continue one", k.dials, k.all, k.on)
	}
}

// TestArrived: an answer that waited to be read is as old as the source's clock says.
func TestArrived(t *testing.T) {
	var a ahead
	for _, x := range []struct {
		clock, now int64
		inTime     bool
		want       int64
	}{{1000, 5000, true, 5000}, {1100, 9000, false, 5100}, {1200, 5100, false, 5100},
		{1300, 9300, true, 9300}, {1400, 9900, false, 9400}} {
		if got := a.arrived(x.clock, x.now, x.inTime); got != x.want {
			t.Errorf("%+v: %d", x, got)
		}
	}
}
