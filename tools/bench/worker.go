package main

import "time"

// worker is the load. Its loop alone touches it.
type worker struct {
	frame      *frame
	idempotent bool
	schedule   schedule
	recorder   *recorder
	conns      []*conn

	base     time.Time // the run's clock counts from here
	started  int64     // base in ms since 1970
	end      int64     // when new operations end, ns of the run's clock; 0 for never
	patience int64     // how long an outcome may stay unknown, ns

	again again   // an earlier run to take duplicates from
	share float64 // of operations that are duplicates
	retry ring    // operations whose outcome is unknown

	stopping bool
	stopped  int64 // since when
	inFlight int
	lost     int // connections that are being made again

	acked    []uint32 // per key, if the run is verified
	doubtful []uint32 // per key, operations of which nothing is known
	tally    tally
}

// tally counts what a worker saw besides latencies.
type tally struct {
	duplicates int64
	errors     map[string]int64
	refused    int64 // error replies after which an operation is not sent again
	first      failure
	retried    int64 // sent again because their outcome was unknown
	unknown    int64 // never known
	reconnects int64
}

const (
	retryRing = 1 << 16
	// retryPause is how long an operation waits that was refused for now.
	retryPause = 50e6
)

func (w *worker) now() int64 { return int64(time.Since(w.base)) }

func (w *worker) unixMs(now int64) uint64 { return uint64(w.started + now/1e6) }

// toRetry takes the next operation whose outcome must be made known.
func (w *worker) toRetry(now int64) *operation {
	o := w.retry.due(now)
	if o != nil {
		w.retry.pop()
		w.tally.retried++
	}
	return o
}

// settled notes the reply to an operation; text is that of an error reply.
func (w *worker) settled(c *conn, s slot, text []byte, now int64) {
	if s&duplicate != 0 {
		w.tally.duplicates++
	}
	if text == nil {
		if w.acked != nil && s&duplicate == 0 {
			w.acked[s]++
		}
		return
	}
	later := mayRetry(text)
	w.tally.failed(text, later)
	if s&duplicate != 0 || !later {
		return
	}
	if w.idempotent && !w.retry.full() {
		o, size := w.retry.push(), len(w.frame.bytes)
		at := c.answered*size + w.frame.idAt
		o.key, o.due = s, now+retryPause
		copy(o.id[:], c.out[at:at+w.frame.idLen])
		return
	}
	w.unknown(s)
}

// unknown notes that the outcome of an operation will not be known.
func (w *worker) unknown(s slot) {
	if s&duplicate != 0 {
		return
	}
	w.tally.unknown++
	if w.doubtful != nil {
		w.doubtful[s]++
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

// finished reports whether everything sent is answered and nothing is left to
// send. It stops the worker when its time has come.
func (w *worker) finished(now int64) bool {
	if !w.stopping && (w.end > 0 && now >= w.end || w.inFlight == 0 && w.exhausted()) {
		w.stopping, w.stopped = true, now
	}
	if !w.stopping {
		return false
	}
	if now > w.stopped+w.patience {
		w.giveUp()
		return true
	}
	return w.inFlight == 0 && w.retry.empty()
}

// giveUp notes that everything under way is unknown.
func (w *worker) giveUp() {
	for _, c := range w.conns {
		c.abandon()
	}
	for ; !w.retry.empty(); w.retry.pop() {
		w.unknown(w.retry.buf[w.retry.first&(retryRing-1)].key)
	}
}
