package disk

import (
	"io"
	"sync/atomic"
)

// Work counts calls of a disk, so that a watchdog sees one that does not end. Calls that each end in time
// are counted each by itself, or they look like one that does not. Safe for concurrent use.
type Work struct{ begun, ended atomic.Uint64 }

// Begin says that a call begins.
func (w *Work) Begin() { w.begun.Add(1) }

// End says that a call has ended.
func (w *Work) End() { w.ended.Add(1) }

// Do counts a call.
func (w *Work) Do(call func() error) error {
	w.Begin()
	defer w.End()
	return call()
}

// Counts returns how many calls have ended, and whether one was under way.
func (w *Work) Counts() (ended uint64, busy bool) {
	ended = w.ended.Load() // first: the other order could take a call that has ended for one under way
	return ended, w.begun.Load() > ended
}

// Fill fills a file as the function does, and counts the calls.
func (w *Work) Fill(f io.WriterAt, from, to int64) (int64, error) {
	return Fill(watched{f, w}, from, to)
}

// watched is a file the writes to which are counted.
type watched struct {
	io.WriterAt
	work *Work
}

func (c watched) WriteAt(p []byte, at int64) (n int, err error) {
	err = c.work.Do(func() (err error) {
		n, err = c.WriterAt.WriteAt(p, at)
		return err
	})
	return n, err
}
