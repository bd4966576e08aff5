package server

import (
	"net"
	"sync"
	"time"

	"github.com/fbfkv/fbfkv/commands"
	"github.com/fbfkv/fbfkv/resp"
)

// dedicated is a connection with a goroutine of its own:
//
//	read what is there → Pipeline.Do each frame → Pipeline.Flush → one write
//
// so that everything a client sent together is executed and committed together.
// It serves any net.Conn: every connection where there is no event loop, and those that
// the event loop gives away.
type dedicated struct {
	conn
	net     net.Conn
	reader  *resp.Reader
	replies resp.Writer

	config        *Config // what limits are taken from
	authenticated bool    // as of then

	// writing is held from when requests are there until they are answered, and to push. So a message that
	// a key has changed comes behind the replies that were decided before.
	writing sync.Mutex
}

// newDedicated returns the connection of a client that was admitted.
func newDedicated(s *Server, nc net.Conn, session *commands.Session) *dedicated {
	return dedicate(s, nc, session, commands.NewPipeline(&s.commands, session),
		resp.NewReader(nc, resp.Limits{}))
}

// dedicate returns a connection that goes on where another left off: with its
// pipeline, and with what reader holds.
func dedicate(s *Server, nc net.Conn, session *commands.Session, p *commands.Pipeline,
	reader *resp.Reader) *dedicated {
	c := &dedicated{
		conn:   conn{server: s, session: session, pipeline: p},
		net:    nc,
		reader: reader,
	}
	c.line = c
	reader.SetSource(c)
	session.Gone = nil
	p.OnHold = func() { c.flush() } // what fails will fail again
	c.replies.Proto = session.Proto()
	commands.NewRound(s.store, &s.commands, false).Join(p)
	c.adopt(s.config.Load())
	return c
}

// stays says of a client that is held that it is there: only reading would tell.
func stays() bool { return false }

func (c *dedicated) start() { go c.serve() }

// stop wakes the goroutine if it waits for a request.
func (c *dedicated) stop() { c.net.SetReadDeadline(time.Unix(1, 0)) }

func (c *dedicated) cut() { hangUp(c.net) }

// serve works until the client leaves, is disconnected, or the server stops.
func (c *dedicated) serve() {
	defer c.server.remove(&c.conn)
	defer c.net.Close()
	defer func() {
		if p := recover(); p != nil {
			c.server.panicked(p, c.session.Addr)
		}
	}()
	err := c.loop()
	c.ended(err)
	if text, ok := goodbyeText(err); ok {
		linger(c.net, text)
	}
}

// loop serves round after round, beginning with requests already read and replies
// not yet sent.
func (c *dedicated) loop() error {
	if err := c.work(); err != nil {
		return err
	}
	for {
		n, err := c.reader.Fill()
		if err != nil {
			return err
		}
		c.in.Add(uint64(n))
		c.reads.Add(1)
		if config := c.server.config.Load(); config != c.config {
			c.adopt(config)
		}
		if err := c.work(); err != nil {
			return err
		}
	}
}

// work is round while nothing is pushed.
func (c *dedicated) work() error {
	c.writing.Lock()
	defer c.writing.Unlock()
	c.phase.Store(phaseWorking)
	defer c.phase.Store(phaseReading)
	return c.round()
}

// push sends bytes beside the replies.
func (c *dedicated) push(b []byte) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	c.phase.Store(c.server.clock.Load())
	defer c.phase.Store(phaseReading)
	n, err := c.net.Write(b)
	c.out.Add(uint64(n))
	c.writes.Add(1)
	return err
}

// round carries out every complete request in the buffer. Requests before one
// that is not RESP are carried out and answered.
func (c *dedicated) round() error {
	var protocol error
	for {
		args, ok, err := c.reader.Next()
		if err != nil || !ok {
			protocol = err
			break
		}
		if c.server.pause.active() {
			if err := c.server.pause.wait(c.pipeline, args, c.flush, stays, c.server.stop); err != nil {
				return err
			}
		}
		c.pipeline.Do(args, &c.replies)
		if c.session.Authenticated() != c.authenticated {
			c.adopt(c.config)
		}
		if c.session.Closing() {
			break
		}
		if c.pipeline.Pending() >= maxBatch || c.replies.Len() >= maxReplies {
			if err := c.flush(); err != nil {
				return err
			}
		}
	}
	if err := c.flush(); err != nil {
		return err
	}
	if c.session.Closing() {
		return errClosing
	}
	return protocol
}

// Read is the source of the reader, which has made room by then: so the buffer counts in full
// while the client sends nothing.
func (c *dedicated) Read(b []byte) (int, error) {
	c.noteBuffers(0)
	return c.net.Read(b)
}

// flush executes what waits and writes all replies.
func (c *dedicated) flush() error {
	c.pipeline.Flush(&c.replies)
	if c.replies.Overflowed() {
		return errOutputLimit
	}
	for b := c.replies.Bytes(); len(b) > 0; {
		c.phase.Store(c.server.clock.Load())
		c.noteBuffers(len(b))
		n, err := c.net.Write(b[:min(len(b), maxWrite)])
		c.out.Add(uint64(n))
		c.writes.Add(1)
		if err != nil {
			return err
		}
		b = b[n:]
	}
	c.phase.Store(phaseWorking)
	c.replies.Reset()
	c.noteBuffers(0)
	c.session.Answered()
	return nil
}

// noteBuffers notes how large the buffers are, what is in the reader's, and how much of the replies is not
// sent yet. The replies keep their memory until all are sent.
func (c *dedicated) noteBuffers(unsent int) {
	held := c.reader.Buffered()
	c.session.QueryBuffer.Store(int64(held))
	c.session.OutputBuffer.Store(int64(unsent))
	c.session.SpareBuffer.Store(int64(c.reader.Memory() - held + c.replies.Cap() - unsent))
}

// adopt takes over the limits of the settings.
func (c *dedicated) adopt(config *Config) {
	c.config = config
	c.authenticated = c.session.Authenticated()
	limits, replies := c.limits(config)
	c.reader.SetLimits(limits)
	c.replies.Limit = replies
}
