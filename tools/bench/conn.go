package main

import "net"

// slot is a key in flight and what the operation is.
type slot uint32

// duplicate marks a copy, whose acknowledgement says nothing about the counter.
const duplicate slot = 1 << 31

// conn is the pipeline of one connection. How bytes travel is the loops' business: they write what
// compose returns, and give what they read to received.
type conn struct {
	w      *worker
	index  int // among the worker's
	stream stream
	old    stream  // of an earlier run, whose operations are sent again
	left   int64   // operations this connection may still begin
	debt   float64 // of duplicates

	out      []byte // pipeline frames, one behind the other
	slots    []slot // the operation in each
	queued   int    // frames of the batch under way
	answered int    // of them
	sent     int64  // when they were sent
	first    int64  // the batch's first place in the open loop's schedule

	in      []byte
	inBytes int // read and not yet scanned

	net     net.Conn // until the loop has taken it over
	fd      int      // of the loop; -1 without a connection
	unsent  []byte   // what the system did not take yet
	waiting bool     // for the system to take more
}

func newConn(w *worker, number int, o *options, f *frame, left int64) *conn {
	c := &conn{w: w, index: number, left: left, stream: newStream(o.Seed, number, o.Connections, o.keys, o.format)}
	if o.again.count > 0 {
		c.old = newStream(o.again.seed, number, o.Connections, o.keys, o.format)
	}
	for range o.Pipeline {
		c.out = append(c.out, f.bytes...)
	}
	c.slots = make([]slot, o.Pipeline)
	c.in = make([]byte, max(4096, min(64*o.Pipeline, 64<<10))+maxReply)
	return c
}

// compose returns the requests of the next batch, or nil if there is nothing
// to send now. The batch before must be answered.
func (c *conn) compose(now int64) []byte {
	w := c.w
	limit := len(c.slots)
	if w.schedule.open() {
		limit = w.schedule.due(now, limit)
	}
	size := len(w.frame.bytes)
	n := 0
	for ; n < limit; n++ {
		b := c.out[n*size : (n+1)*size]
		if w.stopping || c.left == 0 {
			break
		}
		c.left--
		c.slots[n] = c.begin(now, b)
	}
	if n == 0 {
		return nil
	}
	if w.schedule.open() {
		c.first = w.schedule.take(n)
	}
	c.queued, c.answered, c.sent = n, 0, now
	w.inFlight += n
	return c.out[:n*size]
}

// begin puts a new operation, or a duplicate, into a request.
func (c *conn) begin(now int64, b []byte) slot {
	w := c.w
	if w.again.count > 0 {
		if c.debt += w.share; c.debt >= 1 {
			c.debt--
			if c.old.next == uint64(w.again.count) {
				c.old.next = 0
			}
			return slot(c.old.put(w.frame, b, 0)) | duplicate
		}
		return slot(c.stream.put(w.frame, b, 0))
	}
	return slot(c.stream.put(w.frame, b, w.unixMs(now)))
}

// received takes in n more bytes of replies, and reports whether the batch is answered.
func (c *conn) received(n int, now int64) (bool, error) {
	c.inBytes += n
	b := c.in[:c.inBytes]
	before, good := c.answered, 0
	for len(b) > 0 {
		n, failure, err := scanReply(b)
		if err != nil {
			return false, err
		}
		if n == 0 {
			break
		}
		if c.answered == c.queued {
			return false, errReply // more replies than requests
		}
		c.w.settled(c.slots[c.answered], failure)
		if failure == nil {
			good++
			c.recordDue(now)
		}
		c.answered++
		b = b[n:]
	}
	c.inBytes = copy(c.in, b)
	if k := c.answered - before; k > 0 {
		c.w.inFlight -= k
		c.w.recorder.done += int64(k)
		if good < k {
			c.w.recorder.error(now)
		}
		if good > 0 && !c.w.schedule.open() {
			c.w.recorder.record(now, now-c.sent, good)
		}
	}
	return c.answered == c.queued, nil
}

// recordDue notes the latency of the operation that is answered now, in an open
// loop: from when it was due.
func (c *conn) recordDue(now int64) {
	if w := c.w; w.schedule.open() {
		w.recorder.record(now, now-w.schedule.at(c.first+int64(c.answered)), 1)
	}
}
