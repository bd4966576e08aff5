package observe

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/fbfkv/fbfkv/resp"
)

// How much of a command the slow log keeps, as Redis does.
const (
	maxSlowArgs   = 32
	maxSlowLength = 128 // bytes of an argument
)

// Slowlog keeps the last slow batches. A pipeline, or several that arrive at the
// same time, is executed and committed as one batch; which of its commands took
// how long cannot be told apart. So there is one entry for a slow batch: its
// duration, the first of its commands with its client, and how many followed,
// of other clients too.
type Slowlog struct {
	mu      sync.Mutex
	entries []SlowBatch // oldest first
	next    int64
}

// SlowBatch is one entry of the slow log.
type SlowBatch struct {
	ID      int64
	At      time.Time // when it began
	Took    time.Duration
	Command string   // the full name of its first command, such as config|set
	Args    []string // of that command, abridged and without secrets
	Addr    string   // of the client that sent it
	Name    string   // of that client
}

// add puts a batch on the log, which keeps limit entries.
func (l *Slowlog) add(b *Batch, limit int) {
	e := SlowBatch{At: b.Start, Took: b.Took, Command: b.Command, Args: Abridged(b.Args), Addr: b.Addr,
		Name: b.Name}
	if b.More > 0 {
		e.Args = append(e.Args, fmt.Sprintf("... (%d more commands of the same batch)", b.More))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	e.ID = l.next
	l.next++
	l.entries = append(l.entries, e)
	l.trim(limit)
}

// shorten drops what is more than limit entries.
func (l *Slowlog) shorten(limit int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.trim(limit)
}

// trim drops the oldest entries beyond limit; l.mu is held.
func (l *Slowlog) trim(limit int) {
	if extra := len(l.entries) - limit; extra > 0 {
		l.entries = slices.Delete(l.entries, 0, extra)
	}
}

// Latest returns up to n entries, newest first; n < 0: all.
func (l *Slowlog) Latest(n int64) []SlowBatch {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := l.entries
	if n >= 0 && n < int64(len(list)) {
		list = list[int64(len(list))-n:]
	}
	list = slices.Clone(list)
	slices.Reverse(list)
	return list
}

// Len returns the number of entries.
func (l *Slowlog) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.entries)
}

// Reset drops all entries.
func (l *Slowlog) Reset() { l.shorten(0) }

// Write writes up to n entries, newest first, as SLOWLOG GET does; n < 0: all.
func (l *Slowlog) Write(w *resp.Writer, n int64) {
	list := l.Latest(n)
	w.Array(len(list))
	for i := range list {
		e := &list[i]
		w.Array(6)
		w.Int(e.ID)
		w.Int(e.At.Unix())
		w.Int(e.Took.Microseconds())
		w.BulkStrings(e.Args)
		w.BulkString(e.Addr)
		w.BulkString(e.Name)
	}
}

// Abridged returns arguments as logs keep them: long ones and many are cut.
func Abridged(args [][]byte) []string {
	kept, cut := args, 0
	if len(args) > maxSlowArgs {
		kept = args[:maxSlowArgs-1]
		cut = len(args) - len(kept)
	}
	list := make([]string, 0, len(kept)+2)
	for _, a := range kept {
		if len(a) > maxSlowLength {
			list = append(list, fmt.Sprintf("%s... (%d more bytes)", a[:maxSlowLength], len(a)-maxSlowLength))
		} else {
			list = append(list, string(a))
		}
	}
	if cut > 0 {
		list = append(list, fmt.Sprintf("... (%d more arguments)", cut))
	}
	return list
}
