package server

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/fbfkv/fbfkv/store"
)

// TestReadsGoOnWhileTheDiskIsSlow: under everysec, while an fsync takes so long that
// writes have to wait for it, clients that only read are answered, even though others
// write at the same time.
func TestReadsGoOnWhileTheDiskIsSlow(t *testing.T) {
	var closed atomic.Bool
	gate := make(chan struct{})
	open := sync.OnceFunc(func() { close(gate) })
	slow := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpFileSyncData && closed.Load() && strings.Contains(op.Path, "/log/") {
			<-gate
		}
		return nil
	}))
	st, err := store.Open(store.Options{Dir: "data", FS: slow, Fsync: store.Everysec, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	s := startWith(t, Options{Store: st, Logger: quiet})
	defer open()

	const clients = 8
	s.dial(t).expect("+OK", "SET", "read", "7")
	var answered atomic.Int64 // writes
	var writers, readers sync.WaitGroup
	for i := range clients {
		c := s.dial(t)
		writers.Go(func() {
			for n := range 1 << 20 {
				select {
				case <-gate:
					return
				default:
				}
				c.send(frame("CINCRBY", fmt.Sprint("w", i), fmt.Sprint(n), "1"))
				if got := c.reply(); !strings.HasPrefix(got, ":") {
					t.Errorf("write: %q", got)
					return
				}
				answered.Add(1)
			}
		})
	}
	closed.Store(true)
	for range clients {
		c := s.dial(t)
		readers.Go(func() {
			// Until writes have been waiting for so long that nothing else can be
			// meant, and then some more.
			for seen, same := int64(-1), 0; same < 20; same++ {
				for range 100 {
					c.expect("7", "GET", "read")
				}
				if now := answered.Load(); now != seen || !st.Stalled() {
					seen, same = now, 0
				}
			}
		})
	}
	readers.Wait()
	c := s.dial(t) // a new client, too
	for range 100 {
		c.expect("7", "GET", "read")
	}
	open()
	writers.Wait()
}
