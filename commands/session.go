package commands

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fbfkv/fbfkv/commands/acl"
	"github.com/fbfkv/fbfkv/commands/observe"
)

// replyMode is what CLIENT REPLY asked for.
type replyMode uint8

const (
	replyOn   replyMode = iota
	replyOff            // no replies until CLIENT REPLY ON
	replySkip           // no reply to the next command
)

// Session is the state of one connection that commands read and change. The
// connection's goroutine owns it; what other goroutines read (CLIENT LIST,
// CLIENT KILL) is atomic or behind mu.
type Session struct {
	// ID numbers the connections of a server's life, from 1.
	ID int64
	// Addr and LocalAddr are the peer's and our end, as host:port.
	Addr, LocalAddr string

	created       time.Time
	authenticated bool // only the owner reads and writes it
	failures      int  // to log in
	keyRefs       []acl.KeyRef
	reply         replyMode
	tap           *observe.Tap // of a client that monitors

	mu      sync.Mutex
	name    string
	libName string
	libVer  string

	account    atomic.Pointer[acl.Account]
	proto      atomic.Int32
	closing    atomic.Bool
	noEvict    atomic.Bool
	noTouch    atomic.Bool
	monitors   atomic.Bool
	killed     atomic.Bool  // by CLIENT KILL; its connection is about to be gone
	multi      atomic.Int64 // commands queued by MULTI, -1 outside
	lastActive atomic.Int64 // unix nanoseconds
	lastCmd    atomic.Pointer[Command]

	// QueryBuffer and OutputBuffer are the bytes the connection's buffers
	// hold; the server keeps them up to date for CLIENT LIST if it likes.
	QueryBuffer, OutputBuffer atomic.Int64
}

// NewSession returns the session of a connection that was just accepted. It
// is the user default, and authenticated at once if that one needs no password;
// a password set later leaves it so, as in Redis.
func NewSession(id int64, addr, localAddr string, srv *Server) *Session {
	s := &Session{ID: id, Addr: addr, LocalAddr: localAddr, created: time.Now()}
	srv.prepare()
	s.logout(srv.Users)
	s.proto.Store(2)
	s.multi.Store(-1)
	s.lastActive.Store(s.created.UnixNano())
	return s
}

// Closing reports whether the connection is to be closed once its replies are
// written: after QUIT, or CLIENT KILL of itself.
func (s *Session) Closing() bool { return s.closing.Load() }

// Authenticated reports whether the client may run commands; until then the
// server applies its tighter limits. Only the connection's goroutine may ask.
func (s *Session) Authenticated() bool { return s.authenticated }

// Proto is the RESP version the client speaks: 2 or 3.
func (s *Session) Proto() int { return int(s.proto.Load()) }

// LastActive is when the client's last pipeline was executed.
func (s *Session) LastActive() time.Time { return time.Unix(0, s.lastActive.Load()) }

// Name is the name given with CLIENT SETNAME, or "".
func (s *Session) Name() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.name
}

// setName sets the name of the connection.
func (s *Session) setName(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.name = name
}

// setLibrary sets the client library's name or version, whichever is not nil.
func (s *Session) setLibrary(name, version *string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if name != nil {
		s.libName = *name
	}
	if version != nil {
		s.libVer = *version
	}
}

// library returns the client library's name and version.
func (s *Session) library() (name, version string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.libName, s.libVer
}

// takeMute reports whether the next request is to get no reply.
func (s *Session) takeMute() bool {
	switch s.reply {
	case replyOff:
		return true
	case replySkip:
		s.reply = replyOn
		return true
	}
	return false
}

// touch notes the client's last command, nil to keep it, and its time.
func (s *Session) touch(c *Command, at time.Time) {
	if c != nil {
		s.lastCmd.Store(c)
	}
	s.lastActive.Store(at.UnixNano())
}

// describe renders the line of CLIENT LIST and CLIENT INFO, with Redis' field
// names; fields of features that do not exist here have their idle value.
func (s *Session) describe(now time.Time) string {
	cmd := "NULL"
	if c := s.lastCmd.Load(); c != nil {
		cmd = c.FullName()
	}
	lib, ver := s.library()
	return fmt.Sprintf("id=%d addr=%s laddr=%s fd=-1 name=%s age=%d idle=%d flags=%s db=0 sub=0 psub=0 ssub=0 "+
		"multi=%d qbuf=%d qbuf-free=0 argv-mem=0 multi-mem=0 rbs=0 rbp=0 obl=%d oll=0 omem=0 tot-mem=%d events=r "+
		"cmd=%s user=%s redir=-1 resp=%d lib-name=%s lib-ver=%s",
		s.ID, s.Addr, s.LocalAddr, s.Name(),
		int64(now.Sub(s.created)/time.Second), int64(now.Sub(s.LastActive())/time.Second), s.flagLetters(),
		s.multi.Load(), s.QueryBuffer.Load(), s.OutputBuffer.Load(), s.QueryBuffer.Load()+s.OutputBuffer.Load(),
		cmd, s.User(), s.Proto(), lib, ver)
}

// flagLetters renders the flags column of CLIENT LIST.
func (s *Session) flagLetters() string {
	var b []byte
	if s.monitors.Load() {
		b = append(b, 'O')
	}
	if s.multi.Load() >= 0 {
		b = append(b, 'x')
	}
	if s.Closing() {
		b = append(b, 'c')
	}
	if s.noEvict.Load() {
		b = append(b, 'e')
	}
	if s.noTouch.Load() {
		b = append(b, 'T')
	}
	if len(b) == 0 {
		return "N"
	}
	return string(b)
}

// Monitors reports whether the client watches with MONITOR, so that lines are
// pushed to it beside its replies.
func (s *Session) Monitors() bool { return s.monitors.Load() }

// Answered tells the session that all replies so far were handed to the
// connection. Only the connection's owner may call it.
func (s *Session) Answered() {
	if s.tap != nil {
		s.tap.Ready()
	}
}

// End tells the session that its connection is closed. Only the connection's
// owner may call it, once it calls nothing else.
func (s *Session) End() {
	if t := s.tap; t != nil {
		t.Close()
		s.tap = nil
		s.monitors.Store(false)
	}
}
