package server

import (
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/fbfkv/fbfkv/commands"
	"github.com/fbfkv/fbfkv/server/resp"
)

// The steps in which a pipeline of any length is worked off, so that neither
// its operations nor its replies pile up.
const (
	// maxBatch is how many requests are executed as one batch: enough to share
	// a commit, few enough to let others have the partitions in between.
	maxBatch = 1024
	// maxReplies is how many bytes of replies are gathered for one write; with
	// a batch's own it stays within what a resp.Writer keeps.
	maxReplies = 32 << 10
	// maxWrite is how much is handed to the system at once. What counts for
	// client-write-timeout is one such piece, so that a slow client may take
	// its time for a large reply as long as it gets on.
	maxWrite = 256 << 10
)

// conn is one client's connection and the goroutine that serves it:
//
//	read what is there → Pipeline.Do each frame → Pipeline.Flush → one write
//
// so that everything a client sent together is executed and committed together.
type conn struct {
	server   *Server
	net      net.Conn
	session  *commands.Session
	pipeline *commands.Pipeline
	reader   *resp.Reader
	replies  resp.Writer

	config        *Config // what limits are taken from
	authenticated bool    // as of then

	// Read by other goroutines.
	phase   atomic.Int64 // phaseReading, phaseWorking, or when a write began
	in, out atomic.Uint64
}

// The phases of a connection; a positive phase is the server's clock when the
// write under way began.
const (
	phaseReading = 0
	phaseWorking = -1
)

// Reasons for which a connection ends that are not the client's going away.
var (
	errOutputLimit = errors.New("a reply exceeded client-output-buffer-limit")
	errClosing     = errors.New("closed on the client's request")
)

// newConn returns the connection of a client that was admitted.
func newConn(s *Server, nc net.Conn, session *commands.Session) *conn {
	c := &conn{
		server:   s,
		net:      nc,
		session:  session,
		pipeline: commands.NewPipeline(s.store, &s.commands, session),
	}
	c.reader = resp.NewReader(nc, resp.Limits{})
	c.adopt(s.config.Load())
	return c
}

// serve works until the client leaves, is disconnected, or the server stops.
func (c *conn) serve() {
	defer c.server.remove(c)
	defer c.net.Close()
	defer func() {
		if p := recover(); p != nil {
			c.server.panicked(p, c.session.Addr)
		}
	}()
	err := c.loop()
	var protocol *resp.ProtocolError
	switch {
	case errors.As(err, &protocol):
		c.server.logVerbose("protocol error", "client", c.session.Addr, "error", err)
		linger(c.net, "-"+protocol.Text+"\r\n")
	case errors.Is(err, errOutputLimit):
		c.server.log.Warn("client disconnected", "client", c.session.Addr, "reason", err)
	case err != nil && !isOrdinaryEnd(err):
		c.server.logVerbose("client disconnected", "client", c.session.Addr, "reason", err)
	}
}

// isOrdinaryEnd reports whether err is how connections usually end.
func isOrdinaryEnd(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, errClosing) ||
		errors.Is(err, os.ErrDeadlineExceeded)
}

// loop serves round after round.
func (c *conn) loop() error {
	for {
		c.phase.Store(phaseReading)
		n, err := c.reader.Fill()
		c.phase.Store(phaseWorking)
		if err != nil {
			return err
		}
		c.in.Add(uint64(n))
		if config := c.server.config.Load(); config != c.config {
			c.adopt(config)
		}
		if err := c.round(); err != nil {
			return err
		}
	}
}

// round carries out every complete request in the buffer. Requests before one
// that is no RESP are carried out and answered.
func (c *conn) round() error {
	var protocol error
	for {
		args, ok, err := c.reader.Next()
		if err != nil || !ok {
			protocol = err
			break
		}
		if c.server.pause.active() {
			if err := c.waitForPause(args); err != nil {
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
	c.session.QueryBuffer.Store(int64(c.reader.Buffered()))
	if c.session.Closing() {
		return errClosing
	}
	return protocol
}

// flush executes what waits and writes all replies.
func (c *conn) flush() error {
	c.pipeline.Flush(&c.replies)
	if c.replies.Overflowed() {
		return errOutputLimit
	}
	for b := c.replies.Bytes(); len(b) > 0; {
		c.phase.Store(c.server.clock.Load())
		n, err := c.net.Write(b[:min(len(b), maxWrite)])
		c.out.Add(uint64(n))
		if err != nil {
			return err
		}
		b = b[n:]
	}
	c.phase.Store(phaseWorking)
	c.replies.Reset()
	c.session.Answered()
	return nil
}

// adopt takes over the limits of the settings, which depend on whether the
// client has logged in.
func (c *conn) adopt(config *Config) {
	c.config = config
	c.authenticated = c.session.Authenticated()
	c.replies.Limit = int(config.MaxOutput.Hard)
	if c.authenticated || config.RequirePass == "" {
		c.reader.SetLimits(resp.Limits{MaxBulk: int(config.MaxBulk), MaxRequest: int(config.MaxRequest)})
	} else {
		c.reader.SetLimits(resp.UnauthenticatedLimits)
	}
}

// overdue returns why the connection should be closed by now, or "".
func (c *conn) overdue(now time.Time, config *Config) string {
	switch phase := c.phase.Load(); {
	case phase == phaseReading:
		if config.Timeout > 0 && now.Sub(c.session.LastActive()) > config.Timeout {
			return "idle for longer than timeout"
		}
	case phase > 0:
		if config.ClientWriteTimeout > 0 && now.Sub(time.Unix(0, phase)) > config.ClientWriteTimeout {
			return "replies unread for longer than client-write-timeout"
		}
	}
	return ""
}
