package main

import "time"

// worker is the load. Its loop alone touches it.
type worker struct {
	frame    *frame
	schedule schedule
	recorder *recorder
	conns    []*conn

	base    time.Time // the run's clock counts from here
	started int64     // base in ms since 1970
	end     int64     // when new operations end, ns of the run's clock; 0 for never

	again again   // an earlier run to take duplicates from
	share float64 // of operations that are duplicates

	stopping bool
	inFlight int
	acked    []uint32 // per key, if the run is verified
	tally    tally
}

// tally counts what a worker saw besides latencies.
type tally struct {
	duplicates int64
	errors     map[string]int64 // error replies, by their first word
	first      string           // text of the first
}

func (w *worker) now() int64 { return int64(time.Since(w.base)) }

func (w *worker) unixMs(now int64) uint64 { return uint64(w.started + now/1e6) }

// settled notes the reply to an operation; text is an error reply's.
func (w *worker) settled(s slot, text []byte) {
	if s&duplicate != 0 {
		w.tally.duplicates++
	}
	switch {
	case text != nil:
		w.tally.failed(text)
	case w.acked != nil && s&duplicate == 0:
		w.acked[s]++
	}
}

// exhausted reports whether no connection will begin a new operation.
func (w *worker) exhausted() bool {
	for _, c := range w.conns {
		if c.left != 0 {
			return false
		}
	}
	return true
}

// finished reports whether everything sent is answered and nothing is left to send. It stops the worker when its time
// has come.
func (w *worker) finished(now int64) bool {
	w.stopping = w.stopping || w.end > 0 && now >= w.end || w.inFlight == 0 && w.exhausted()
	return w.stopping && w.inFlight == 0
}
