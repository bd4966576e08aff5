package cluster

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/raft"

	"github.com/fbfkv/fbfkv/cluster/wire"
)

const (
	// cutIdle is how long a cut, and the entries of the log behind it, are kept when nobody
	// asks for it.
	cutIdle = 10 * time.Minute
	// maxServed is how many nodes are given files at a time.
	maxServed = 8
	// transferRate is how many bytes a second a node gives to all others together.
	transferRate = 64 << 20
)

// fileServer gives the files of this node to nodes that are behind: those of one cut at a
// time, to all who ask.
type fileServer struct {
	o      fileServerOptions
	files  *wire.FileServer
	counts Transfers

	mu       sync.Mutex
	cut      *servedCut
	readings map[*wire.Line]*reading
	idle     *time.Timer
	making   sync.WaitGroup
	closed   bool
}

// fileServerOptions configure a fileServer. All of them are required.
type fileServerOptions struct {
	fs vfs.FS
	// dir is where the cut is; it is read, and removed by remove.
	dir    string
	remove func() error
	// begin has the log keep all entries behind Raft's last snapshot from now on, and says
	// where it is; release ends that, also after an error of begin. cut makes a cut.
	begin   func() (cutPosition, error)
	release func()
	cut     func() error
	rate    int64 // bytes a second
	log     *slog.Logger
}

// cutPosition is where in the log a cut is.
type cutPosition struct {
	applied, appliedTerm uint64 // the entry up to which it is applied
	logBytes             uint64
	snapshot             *raft.SnapshotMeta // nil: the log begins with the first entry
}

// servedCut is a cut, or one that is being made.
type servedCut struct {
	id       string
	at       cutPosition
	bytes    uint64
	manifest []byte // nil: it is being made
	err      error
	readers  int  // connections that fetch it
	spent    bool // its files are removed, the entries are still kept
	asked    time.Time
}

func newFileServer(o fileServerOptions) *fileServer {
	s := &fileServer{o: o, files: wire.NewFileServer(o.fs, o.rate), readings: map[*wire.Line]*reading{}}
	s.idle = time.AfterFunc(cutIdle, s.expire)
	return s
}

// close removes the cut. Nobody is served any more.
func (s *fileServer) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.making.Wait()
	s.idle.Stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop()
}

// expire drops a cut that nobody has asked for.
func (s *fileServer) expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.cut
	if c == nil || s.closed {
		return
	}
	if rest := cutIdle - time.Since(c.asked); rest > 0 || c.manifest == nil && c.err == nil {
		s.idle.Reset(max(rest, time.Second))
		return
	}
	s.o.log.Info("no node fetches this node's files any more: the copy is dropped", "cut", c.id)
	s.drop()
}

// drop removes the cut, and lets the log be trimmed. It is not being made. The lock is held.
func (s *fileServer) drop() {
	if s.cut == nil {
		return
	}
	s.o.release()
	s.removeFiles()
	s.cut = nil
}

// removeFiles ends the offer of the cut. The lock is held.
func (s *fileServer) removeFiles() {
	s.files.Withdraw(s.cut.id)
	if err := s.o.remove(); err != nil {
		s.o.log.Warn("the files of a copy cannot be removed; the next start removes them", "error", err)
	}
}

// answers has the questions of nodes that are behind answered by a way, or refused from now on.
func (s *fileServer) answers(answer func(verb string, v wire.Verb), yes bool) {
	if !yes {
		for _, verb := range []string{verbManifest, verbDone, wire.VerbRead} {
			answer(verb, wire.Verb{})
		}
		return
	}
	answer(verbManifest, wire.Answer(0, func(c *wire.Call, q manifestAsk) (any, []byte, error) {
		b, err := s.manifest(c, q)
		return nil, b, err
	}))
	answer(verbDone, wire.Answer(0, func(c *wire.Call, q doneAsk) (any, []byte, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if r := s.readings[c.Line()]; r != nil && r.cut != nil && r.cut.id == q.Cut {
			r.done = true
			s.leave(r)
		}
		return nil, nil, nil
	}))
	answer(wire.VerbRead, s.files.Verb())
}

// reading is one connection that is given files.
type reading struct {
	node string
	cut  *servedCut
	done bool
}

// reads returns what is known of the connection of a question. The lock is held.
func (s *fileServer) reads(c *wire.Call) (*reading, error) {
	line := c.Line()
	if r := s.readings[line]; r != nil {
		return r, nil
	}
	if len(s.readings) >= maxServed {
		return nil, fmt.Errorf("%d nodes are given files already", maxServed)
	}
	r := &reading{node: c.From}
	s.readings[line] = r
	line.OnEnd(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.readings, line)
		s.leave(r)
	})
	return r, nil
}

// manifest returns the manifest of a cut that takes the place of a log. errWait: it is being made.
func (s *fileServer) manifest(call *wire.Call, q manifestAsk) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, wire.ErrGone
	}
	r, err := s.reads(call)
	if err != nil {
		return nil, err
	}
	if c := s.cut; c != nil && c.manifest != nil &&
		(c.spent || !takesPlaceOf(c.at.applied, c.at.appliedTerm, q.Last, q.Term)) {
		s.drop()
	}
	if s.cut == nil {
		s.begin(q.Last, q.Term)
	}
	c := s.cut
	c.asked = time.Now()
	switch {
	case c.err != nil:
		s.drop()
		return nil, c.err
	case c.manifest == nil:
		return nil, errWait
	}
	if r.cut != c {
		s.leave(r)
		r.cut = c
		c.readers++
		s.counts.begun.Add(1)
	}
	return c.manifest, nil
}

// keepsLog reports whether somebody needs the entries behind the cut, of a log that has so
// many bytes now. If they have become too many, the cut is dropped: a newer one costs less.
func (s *fileServer) keepsLog(logBytes uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.cut
	if c == nil {
		return false
	}
	if c.manifest == nil || logBytes <= c.at.logBytes+max(heldLog, c.bytes) {
		return true
	}
	s.o.log.Warn("log limit reached: the copy that a node is fetching is dropped, and the node must start "+
		"fetching again", "cut", c.id)
	s.drop()
	return false
}

// begin begins to make a cut that takes the place of a log. The lock is held.
func (s *fileServer) begin(last, lastTerm uint64) {
	c := &servedCut{id: wire.NewOfferID(), asked: time.Now()}
	s.cut = c
	s.idle.Reset(cutIdle)
	s.making.Go(func() {
		at, err := s.o.begin()
		if err == nil && !takesPlaceOf(at.applied, at.appliedTerm, last, lastTerm) {
			err = errNotBehind
		}
		s.mu.Lock()
		c.at = at
		s.mu.Unlock()
		var b []byte
		var o wire.Offer
		if err == nil {
			b, o, err = s.make(c)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		c.bytes = uint64(o.Bytes())
		if c.manifest, c.err = b, err; err != nil {
			s.o.log.Warn("this node's files cannot be copied for a node that is behind", "error", err)
			s.o.release()
			return
		}
		s.files.Offer(o, s.o.dir, func(n int) {
			s.mu.Lock()
			defer s.mu.Unlock()
			c.asked = time.Now()
			s.counts.bytes.Add(uint64(n))
		})
	})
}

// make makes a cut, and its manifest.
func (s *fileServer) make(c *servedCut) ([]byte, wire.Offer, error) {
	began := time.Now()
	m := manifest{Offer: wire.Offer{ID: c.id}, Snapshot: c.at.snapshot}
	if err := s.o.cut(); err != nil {
		return nil, m.Offer, err
	}
	for _, dir := range append([]string{""}, cutDirs...) {
		names, err := s.o.fs.List(s.o.fs.PathJoin(s.o.dir, dir))
		if err != nil {
			return nil, m.Offer, err
		}
		for _, name := range names {
			if dir != "" {
				name = dir + "/" + name
			}
			if !validFileName(name) {
				continue // a directory, or a file that Open would remove
			}
			f, err := s.files.Sum(s.o.dir, name, s.files.Pace.Wait)
			if err != nil {
				return nil, m.Offer, err
			}
			m.Files = append(m.Files, f)
		}
	}
	slices.SortFunc(m.Files, func(a, b wire.File) int { return strings.Compare(a.Name, b.Name) })
	b, err := m.encode()
	if err == nil && len(b) > maxManifest {
		err = fmt.Errorf("%d files are too many to be fetched", len(m.Files))
	}
	if err != nil {
		return nil, m.Offer, err
	}
	s.o.log.Info("a copy is ready for a node to fetch", "cut", m.ID, "applied", c.at.applied, "files",
		len(m.Files), "bytes", m.Bytes(), "took", time.Since(began))
	return b, m.Offer, nil
}

// leave ends fetching a cut. Its files go when the last who fetched them says that it is
// done; the entries behind it are kept for a while, since these it needs now. The lock is
// held.
func (s *fileServer) leave(r *reading) {
	c := r.cut
	if c == nil {
		return
	}
	if r.done {
		s.counts.finished.Add(1)
		s.o.log.Info("a node has fetched all of this node's files", "node", r.node, "bytes", c.bytes)
	} else {
		s.counts.failed.Add(1)
		s.o.log.Warn("a node has stopped fetching this node's files", "node", r.node)
	}
	r.cut = nil
	if c.readers--; r.done && c.readers == 0 && s.cut == c {
		c.spent = true
		s.removeFiles()
	}
}
