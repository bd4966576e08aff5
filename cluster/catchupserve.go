package cluster

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/raft"

	"github.com/fbfkv/fbfkv/persistence/disk"
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
	pace   pace
	served chan struct{} // who is given files
	counts Transfers

	mu     sync.Mutex
	cut    *servedCut
	idle   *time.Timer
	making sync.WaitGroup
	closed bool
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
	id       cutID
	at       cutPosition
	files    []cutFile
	bytes    uint64
	manifest []byte // with answerHeader free bytes before it; nil: it is being made
	err      error
	readers  int  // connections that fetch it
	spent    bool // its files are removed, the entries are still kept
	asked    time.Time
}

func newFileServer(o fileServerOptions) *fileServer {
	s := &fileServer{o: o, pace: pace{rate: o.rate}, served: make(chan struct{}, maxServed)}
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
	s.o.log.Info("no node fetches this node's files any more: the copy is dropped", "cut",
		hex.EncodeToString(c.id[:]))
	s.drop()
}

// drop removes the cut, and lets the log be trimmed. It is not being made. The lock is held.
func (s *fileServer) drop() {
	if s.cut == nil {
		return
	}
	s.cut = nil
	s.o.release()
	s.removeFiles()
}

func (s *fileServer) removeFiles() {
	if err := s.o.remove(); err != nil {
		s.o.log.Warn("the files of a copy cannot be removed; the next start removes them", "error", err)
	}
}

// serve answers the questions of a node until the connection ends.
func (s *fileServer) serve(conn net.Conn, peer Identity) {
	defer conn.Close()
	select {
	case s.served <- struct{}{}:
		defer func() { <-s.served }()
	default:
		_ = conn.SetDeadline(time.Now().Add(answerTimeout)) // if it fails, so does what follows
		_ = writeText(conn, statusRefused, fmt.Sprintf("%d nodes are given files already", maxServed))
		return
	}
	r := reading{s: s, conn: conn, files: make(map[int]vfs.File), buf: make([]byte, answerHeader+maxRead)}
	err := r.run()
	r.end()
	switch {
	case r.cut == nil: // it never came to that
	case r.done:
		s.counts.finished.Add(1)
		s.o.log.Info("a node has fetched all of this node's files", "node", peer.Node, "bytes", r.sent)
	default:
		s.counts.failed.Add(1)
		s.o.log.Warn("a node has stopped fetching this node's files", "node", peer.Node, "bytes", r.sent,
			"error", err)
	}
}

// reading is one connection that is given files.
type reading struct {
	s     *fileServer
	conn  net.Conn
	cut   *servedCut
	files map[int]vfs.File // that are open: one, of each cut
	buf   []byte
	sent  int64
	done  bool
}

// run answers questions.
func (r *reading) run() error {
	for !r.done {
		if err := r.conn.SetReadDeadline(time.Now().Add(askTimeout)); err != nil {
			return err
		}
		q, err := readQuestion(r.conn)
		if err != nil {
			return err
		}
		if err := r.conn.SetWriteDeadline(time.Now().Add(answerTimeout)); err != nil {
			return err
		}
		if err := r.answer(q); err != nil {
			return err
		}
	}
	return nil
}

func (r *reading) answer(q question) error {
	switch q.verb {
	case verbManifest:
		b, err := r.manifest(q.a, q.b)
		switch {
		case errors.Is(err, errWait):
			return writeText(r.conn, statusWait, "")
		case err != nil:
			return writeText(r.conn, statusRefused, err.Error())
		}
		return writeAnswer(r.conn, statusOK, b)
	case verbRead:
		b, err := r.read(q)
		switch {
		case errors.Is(err, errGone):
			return writeText(r.conn, statusGone, "")
		case err != nil:
			return errors.Join(err, writeText(r.conn, statusRefused, err.Error()))
		}
		r.s.pace.wait(len(b))
		if err := r.conn.SetWriteDeadline(time.Now().Add(answerTimeout)); err != nil {
			return err
		}
		if err := writeAnswer(r.conn, statusOK, b); err != nil {
			return err
		}
		r.sent += int64(len(b) - answerHeader)
		r.s.counts.bytes.Add(uint64(len(b) - answerHeader))
		return nil
	case verbDone:
		r.done = r.cut != nil && r.cut.id == q.cut
		return writeText(r.conn, statusOK, "")
	}
	return fmt.Errorf("%w: a question of kind %d", errProtocol, q.verb)
}

// manifest returns the manifest of a cut that takes the place of a log, with free bytes
// before it. errWait: it is being made.
func (r *reading) manifest(last, lastTerm uint64) ([]byte, error) {
	s := r.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errGone
	}
	if c := s.cut; c != nil && c.manifest != nil &&
		(c.spent || !takesPlaceOf(c.at.applied, c.at.appliedTerm, last, lastTerm)) {
		s.drop()
	}
	if s.cut == nil {
		s.begin(last, lastTerm)
	}
	c := s.cut
	s.touch(c)
	switch {
	case c.err != nil:
		s.drop()
		return nil, c.err
	case c.manifest == nil:
		return nil, errWait
	}
	if r.cut != c {
		r.leave()
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
		"fetching again", "cut", hex.EncodeToString(c.id[:]))
	s.drop()
	return false
}

// touch notes that somebody asks for a cut. The lock is held.
func (s *fileServer) touch(c *servedCut) { c.asked = time.Now() }

// begin begins to make a cut that takes the place of a log. The lock is held.
func (s *fileServer) begin(last, lastTerm uint64) {
	c := &servedCut{asked: time.Now()}
	_, _ = rand.Read(c.id[:]) // never fails
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
		var files []cutFile
		if err == nil {
			b, files, err = s.make(c)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, f := range files {
			c.bytes += uint64(f.Size)
		}
		if c.manifest, c.files, c.err = b, files, err; err != nil {
			s.o.log.Warn("this node's files cannot be copied for a node that is behind", "error", err)
			s.o.release()
		}
	})
}

// make makes a cut, and its manifest.
func (s *fileServer) make(c *servedCut) ([]byte, []cutFile, error) {
	began := time.Now()
	if err := s.o.cut(); err != nil {
		return nil, nil, err
	}
	m := manifest{Cut: hex.EncodeToString(c.id[:]), Snapshot: c.at.snapshot}
	for _, dir := range append([]string{""}, cutDirs...) {
		names, err := s.o.fs.List(s.o.fs.PathJoin(s.o.dir, dir))
		if err != nil {
			return nil, nil, err
		}
		for _, name := range names {
			if dir != "" {
				name = dir + "/" + name
			}
			if !validFileName(name) {
				continue // a directory, or a file that Open would remove
			}
			f, err := s.sum(name)
			if err != nil {
				return nil, nil, err
			}
			m.Files = append(m.Files, f)
		}
	}
	slices.SortFunc(m.Files, func(a, b cutFile) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	b, err := m.encode()
	if err == nil && len(b) > maxManifest {
		err = fmt.Errorf("%d files are too many to be fetched", len(m.Files))
	}
	if err != nil {
		return nil, nil, err
	}
	s.o.log.Info("a copy is ready for a node to fetch", "cut", m.Cut, "applied", c.at.applied, "files",
		len(m.Files), "bytes", m.bytes(), "took", time.Since(began))
	return append(make([]byte, answerHeader), b...), m.Files, nil
}

// sum returns the size and the checksum of a file.
func (s *fileServer) sum(name string) (cutFile, error) {
	f := cutFile{Name: name}
	in, err := s.o.fs.Open(s.o.fs.PathJoin(s.o.dir, name), vfs.SequentialReadsOption)
	if err != nil {
		return f, err
	}
	f.Size, f.Sum, err = sumOf(in, s.pace.wait)
	return f, errors.Join(err, in.Close())
}

// sumOf reads a file to its end, and tells of each part how long it was.
func sumOf(in io.Reader, read func(n int)) (size int64, sum uint32, err error) {
	buf := make([]byte, 256<<10)
	for {
		n, err := in.Read(buf)
		sum = crc32.Update(sum, disk.Castagnoli, buf[:n])
		size += int64(n)
		read(n)
		if errors.Is(err, io.EOF) {
			return size, sum, nil
		}
		if err != nil {
			return size, sum, err
		}
	}
}

// read reads a part of a file of the present cut.
func (r *reading) read(q question) ([]byte, error) {
	f, size, err := r.open(q)
	if err != nil {
		return nil, err
	}
	if q.n == 0 || q.n > maxRead || q.b > uint64(size) || uint64(q.n) > uint64(size)-q.b {
		return nil, fmt.Errorf("%w: %d bytes from %d on of a file of %d", errProtocol, q.n, q.b, size)
	}
	b := r.buf[:answerHeader+int(q.n)]
	_, err = f.ReadAt(b[answerHeader:], int64(q.b))
	return b, err
}

// open returns a file of the present cut, by its number.
func (r *reading) open(q question) (f vfs.File, size int64, err error) {
	s := r.s
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.cut
	if c == nil || c != r.cut || c.id != q.cut || c.spent || s.closed {
		return nil, 0, errGone
	}
	s.touch(c)
	if q.a >= uint64(len(c.files)) {
		return nil, 0, fmt.Errorf("%w: file %d of %d", errProtocol, q.a, len(c.files))
	}
	i := int(q.a)
	f = r.files[i]
	if f == nil {
		r.closeFiles()
		if f, err = s.o.fs.Open(s.o.fs.PathJoin(s.o.dir, c.files[i].Name),
			vfs.SequentialReadsOption); err != nil {
			return nil, 0, err
		}
		r.files[i] = f
	}
	return f, c.files[i].Size, nil
}

func (r *reading) closeFiles() {
	for i, f := range r.files {
		_ = f.Close() // it was only read
		delete(r.files, i)
	}
}

// end gives back what the connection has used.
func (r *reading) end() {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	r.leave()
}

// leave ends fetching a cut. Its files go when the last who fetched them says that it is
// done; the entries behind it are kept for a while, since these it needs now. The lock is
// held.
func (r *reading) leave() {
	r.closeFiles()
	c := r.cut
	if c == nil {
		return
	}
	if c.readers--; r.done && c.readers == 0 && r.s.cut == c {
		c.spent = true
		r.s.removeFiles()
	}
}

// pace bounds how many bytes are read a second. Safe for concurrent use.
type pace struct {
	rate int64
	mu   sync.Mutex
	next time.Time // when the next bytes may be read
}

// wait returns when it is time for so many bytes more.
func (p *pace) wait(bytes int) {
	p.mu.Lock()
	now := time.Now()
	if p.next.Before(now) {
		p.next = now
	}
	at := p.next
	p.next = at.Add(time.Duration(float64(bytes) / float64(p.rate) * float64(time.Second)))
	p.mu.Unlock()
	if d := at.Sub(now); d > 0 {
		time.Sleep(d)
	}
}
