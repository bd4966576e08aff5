package bench

import (
	"math"
	"os"
	"strings"
	"testing"
	"time"
)

// TestWaits says for what idle processors wait, from what threads are in.
func TestWaits(t *testing.T) {
	epoll, futex := "281 0x4 0x7f 0x80 0xffffffff 0x0 0x0 0x7f 0x45", "202 0xc0 0x80 0x0 0x0 0x0 0x0 0x7f 0x45"
	if stateOf([]byte(futex)) != threadWaits || stateOf([]byte("-1 0x7f 0x45\n")) != threadFiles || stateOf([]byte("running\n")) != threadRuns {
		t.Error("states of threads are misread")
	}
	for _, tt := range []struct {
		threads string
		others  bool
		want    int
	}{
		{epoll + "\n" + futex, false, waitWaking},
		{epoll + "\n" + futex, true, waitClients},
		{"running\n" + epoll, true, waitServer},
		{"fsync\n" + epoll, true, waitFsync},
		{"fsync\nrunning", false, waitServer},
		{"pread\n" + epoll, true, waitClients},
		{"pread\n" + epoll, false, waitFiles},
	} {
		var states []threadState
		for text := range strings.SplitSeq(tt.threads, "\n") {
			switch text {
			case "fsync":
				states = append(states, threadSyncs)
			case "pread":
				states = append(states, threadFiles)
			default:
				states = append(states, stateOf([]byte(text)))
			}
		}
		if got := reasonFor(states, tt.others); got != tt.want {
			t.Errorf("%q, others %v: %s, want %s", tt.threads, tt.others, waitNames[got], waitNames[tt.want])
		}
	}
	if got, want := (waits{waitFsync: 0.6, waitClients: 0.36, waitServer: 0.04}).String(), "waiting: for fsync 60 %, for clients 36 %"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := (waits{}).String(); got != unknownWait {
		t.Errorf("%q", got)
	}
}

// TestWatchWaits looks at this process: shares are of something, or nothing is known;
// of a process that is not there nothing is.
func TestWatchWaits(t *testing.T) {
	w := newWaitWatch(os.Getpid())
	over := make(chan struct{})
	time.AfterFunc(200*time.Millisecond, func() { close(over) })
	w.watch(over)
	if w.err != nil || w.looks == 0 {
		t.Errorf("%d looks, %v", w.looks, w.err)
	}
	sum := 0.0
	for _, share := range w.shares() {
		sum += share
	}
	if sum != 0 && math.Abs(sum-1) > 1e-9 {
		t.Errorf("%v", w.shares())
	}
	none := watchWaits(math.MaxInt32)
	time.Sleep(20 * time.Millisecond)
	if got := none(); got != (waits{}) {
		t.Errorf("%v", got)
	}
}
