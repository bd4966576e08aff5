package server

import (
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/fbfkv/fbfkv/commands"
	"github.com/fbfkv/fbfkv/resp"
)

// The steps in which a pipeline of any length is worked off, so that neither
// its operations nor its replies pile up.
const (
	// maxBatch is how many requests of one connection are executed as one batch:
	// enough to share a commit, few enough to let others have the partitions in
	// between.
	maxBatch = 1024
	// maxReplies is how many bytes of replies are gathered for one write; with
	// a batch's own it stays within what a resp.Writer keeps.
	maxReplies = 32 << 10
	// maxWrite is how much is handed to the system at once. What counts for
	// writeTimeout is one such piece, so that a slow client may take
	// its time for a large reply as long as it gets on.
	maxWrite = 256 << 10
)

// conn is one client's connection, whoever serves it: a goroutine of its own
// (dedicated) or the event loop (polled).
type conn struct {
	server   *Server
	session  *commands.Session
	pipeline *commands.Pipeline
	line     line

	// Read by other goroutines.
	phase   atomic.Int64  // phaseReading, phaseWorking, or when a write began to wait
	in, out atomic.Uint64 // bytes

	reads, writes atomic.Uint64

	// The watch's own:
	overSoft time.Time // since when more than the soft limit waits
	evicted  bool      // see evict; it is about to be gone
}

// line is how other goroutines reach a connection.
type line interface {
	// start begins to serve it.
	start()
	// stop lets it end once everything is answered that was read from it.
	stop()
	// cut ends it at once. It may have ended already.
	cut()
}

// The phases of a connection; a positive phase is the server's clock when the
// write under way last got on.
const (
	phaseReading = 0
	phaseWorking = -1
)

// Reasons for which a connection ends that are not the client's going away.
var (
	errOutputLimit = errors.New("a reply exceeded client-output-buffer-limit")
	errClosing     = errors.New("closed on the client's request")
	errPanicked    = errors.New("a bug in the server")
)

// maxChunk is how long an argument of BF.LOADCHUNK may be, whatever proto-max-bulk-len says:
// others dump filters in chunks of 16 MiB.
const maxChunk = 16<<20 + 1<<10

// writeTimeout is how long a client may read nothing of replies that wait for it. The soft limit of
// client-output-buffer-limit is for those that ask for less.
const writeTimeout = time.Minute

// limits returns what bounds a client's requests, and its replies in bytes. They
// depend on whether it has logged in.
func (c *conn) limits(config *Config) (resp.Limits, int) {
	replies := int(config.MaxOutput.Hard)
	if c.session.Authenticated() || !c.server.commands.Users.LoginNeeded() {
		return resp.Limits{MaxBulk: int(config.MaxBulk), MaxRequest: int(config.MaxRequest),
			Chunk: "bf.loadchunk", MaxChunk: maxChunk}, replies
	}
	return resp.UnauthenticatedLimits, replies
}

// ended logs why a connection ends.
func (c *conn) ended(err error) {
	var protocol *resp.ProtocolError
	switch {
	case errors.Is(err, resp.ErrHTTP):
		c.server.warnOfHTTP(c.session.Addr)
	case errors.As(err, &protocol):
		c.server.logVerbose("protocol error", "client", c.session.Addr, "error", err)
	case errors.Is(err, errOutputLimit):
		c.server.log.Warn("client disconnected", "client", c.session.Addr, "reason", err)
	case err != nil && !isOrdinaryEnd(err):
		c.server.logVerbose("client disconnected", "client", c.session.Addr, "reason", err)
	}
}

// isOrdinaryEnd reports whether err is how connections usually end.
func isOrdinaryEnd(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, errClosing) ||
		errors.Is(err, errPanicked) || errors.Is(err, os.ErrDeadlineExceeded)
}

// goodbyeText returns the error that a client is told whose connection ends with
// err, if any.
func goodbyeText(err error) (text string, ok bool) {
	var protocol *resp.ProtocolError
	if !errors.As(err, &protocol) {
		return "", false
	}
	return protocol.Text, true
}

// overdue returns why the connection should be closed by now, or "".
func (c *conn) overdue(now time.Time, config *Config) string {
	if c.overSoftLimit(now, &config.MaxOutput) {
		return "replies unread beyond the soft limit of client-output-buffer-limit"
	}
	switch phase := c.phase.Load(); {
	case phase == phaseReading:
		if config.Timeout > 0 && now.Sub(c.session.LastActive()) > config.Timeout {
			return "idle for longer than timeout"
		}
	case phase > 0:
		if now.Sub(time.Unix(0, phase)) > writeTimeout {
			return "no reply read for " + writeTimeout.String()
		}
	}
	return ""
}

// overSoftLimit reports whether more replies wait for the client than the soft
// limit allows, and have for its time. It is called about once a second.
func (c *conn) overSoftLimit(now time.Time, limit *OutputLimit) bool {
	if limit.Soft == 0 || c.session.OutputBuffer.Load() <= limit.Soft {
		c.overSoft = time.Time{}
		return false
	}
	if c.overSoft.IsZero() {
		c.overSoft = now
	}
	return now.Sub(c.overSoft) >= limit.SoftTime
}

// warnEvery is how often requests of HTTP are logged.
const warnEvery = time.Minute

// warnOfHTTP logs that a client speaks HTTP, as Redis does.
func (s *Server) warnOfHTTP(client string) {
	now, last := time.Now().UnixNano(), s.warned.Load()
	if last != 0 && now-last < int64(warnEvery) || !s.warned.CompareAndSwap(last, now) {
		return
	}
	s.log.Warn("possible attack: a client sends POST or Host:, as a browser does when a page tricks it "+
		"into posting commands; "+
		"it was disconnected", "client", client)
}
