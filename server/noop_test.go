package server

import (
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fbfkv/fbfkv/store"
)

// noop is a store that does nothing: every operation succeeds at once. The remaining cost is the
// cost of serving.
func noop(b *store.Batch) {
	for i := range b.Ops {
		b.Ops[i].Value, b.Ops[i].Applied, b.Ops[i].Found = 1, true, true
	}
}

// TestServe is no test: it runs a server to measure, until it is interrupted.
//
//	go test -c -o serve.test ./server
//	FBFKV_SERVE="port 7100 appendfsync everysec" ./serve.test -test.run '^TestServe$'
//
// FBFKV_SERVE holds settings; the setting "noop yes" puts noop in the store's
// place. -test.cpuprofile and its like work as usual.
func TestServe(t *testing.T) {
	words := strings.Fields(os.Getenv("FBFKV_SERVE"))
	if len(words) == 0 {
		t.Skip("a server to measure, see its comment")
	}
	withoutStore := false
	var settings []string
	for i := 0; i+1 < len(words); i += 2 {
		if words[i] == "noop" {
			withoutStore = words[i+1] == "yes"
			continue
		}
		settings = append(settings, words[i], words[i+1])
	}
	config := configWith(t, append([]string{"dir", t.TempDir()}, settings...)...)
	options, err := config.StoreOptions()
	if err != nil {
		t.Fatal(err)
	}
	options.Logger = quiet
	st, err := store.Open(options)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	listeners, err := Listen(config)
	if err != nil {
		t.Fatal(err)
	}
	s := New(Options{Store: st, Config: config, Logger: quiet})
	var batches, operations atomic.Int64
	s.commands.Execute = func(b *store.Batch) {
		batches.Add(1)
		operations.Add(int64(len(b.Ops)))
		if withoutStore {
			noop(b)
		} else {
			st.Execute(b)
		}
	}
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt)
	go func() { <-interrupted; s.Stop(true) }()
	if err := s.Serve(listeners...); err != ErrStopped {
		t.Error(err)
	}
	fmt.Printf("%d operations in %d batches: %.1f each\n", operations.Load(), batches.Load(),
		float64(operations.Load())/float64(max(batches.Load(), 1)))
}
