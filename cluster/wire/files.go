package wire

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/persistence/disk"
)

// Limits of the messages.
const (
	// MaxRead is how many bytes of a file are in one answer.
	MaxRead  = 1 << 20
	maxFiles = 128 << 10
	// MaxFile bounds the bytes of a file.
	MaxFile = 1 << 42
	// readTime is how long the answer to a read may take.
	readTime = time.Minute
)

// VerbRead asks for bytes of an offered file, by its number: no name is ever asked for.
const VerbRead = "read"

// ReadAsk is what VerbRead takes.
type ReadAsk struct {
	Offer string `json:"offer"`
	File  int    `json:"file"`
	At    int64  `json:"at"`
	Bytes int    `json:"bytes"`
}

// ErrGone: what is asked for is not offered any more.
var ErrGone = &Refusal{"gone", "the files are not offered any more"}

// File is a file of an offer.
type File struct {
	// Name is its path in the directory, with slashes.
	Name string `json:"name"`
	Size int64  `json:"size"`
	// Sum is the CRC-32C of its bytes.
	Sum uint32 `json:"sum"`
}

// Offer names files that a node gives. No two offers have the same id.
type Offer struct {
	ID    string `json:"id"`
	Files []File `json:"files"`
}

// NewOfferID draws an id.
func NewOfferID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// Bytes returns the size of all files.
func (o *Offer) Bytes() (n int64) {
	for _, f := range o.Files {
		n += f.Size
	}
	return n
}

// Valid checks an offer of another node: its files are ascending, and a name may be one of them.
func (o *Offer) Valid(may func(name string) bool) error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: an offer: %s", ErrProtocol, fmt.Sprintf(format, args...))
	}
	if b, err := hex.DecodeString(o.ID); err != nil || len(b) != 16 {
		return bad("%.50q is not an id", o.ID)
	}
	if len(o.Files) == 0 || len(o.Files) > maxFiles {
		return bad("%d files", len(o.Files))
	}
	for i, f := range o.Files {
		switch {
		case !may(f.Name):
			return bad("%.150q is not the name of a file that may come", f.Name)
		case f.Size < 0 || f.Size > MaxFile:
			return bad("%s has %d bytes", f.Name, f.Size)
		case i > 0 && o.Files[i-1].Name >= f.Name:
			return bad("%s follows %s", f.Name, o.Files[i-1].Name)
		}
	}
	return nil
}

// FileServer gives the files of offers to nodes that ask. Safe for concurrent use.
type FileServer struct {
	fs     vfs.FS
	Pace   Pace
	mu     sync.Mutex
	offers map[string]offered
}

type offered struct {
	dir   string
	files []File
	given func(bytes int)
}

// NewFileServer returns one that gives so many bytes a second to all who ask together.
func NewFileServer(fsys vfs.FS, rate int64) *FileServer {
	return &FileServer{fs: fsys, Pace: Pace{Rate: rate}, offers: map[string]offered{}}
}

// Sum returns a file of a directory with its size and checksum. read is told how many bytes were
// read: Pace.Wait bounds them.
func (s *FileServer) Sum(dir, name string, read func(bytes int)) (f File, err error) {
	f.Name = name
	in, err := s.fs.Open(s.fs.PathJoin(dir, name), vfs.SequentialReadsOption)
	if err != nil {
		return f, err
	}
	f.Size, f.Sum, err = sumOf(in, read)
	return f, errors.Join(err, in.Close())
}

// Offer gives files of a directory from now on; given is told of each read.
func (s *FileServer) Offer(o Offer, dir string, given func(bytes int)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.offers[o.ID] = offered{dir, o.Files, given}
}

// Withdraw ends an offer.
func (s *FileServer) Withdraw(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.offers, id)
}

// Verb answers VerbRead.
func (s *FileServer) Verb() Verb {
	return Answer(0, func(c *Call, q ReadAsk) (any, []byte, error) {
		b, err := s.read(c, q)
		return nil, b, err
	})
}

func (s *FileServer) read(c *Call, q ReadAsk) ([]byte, error) {
	s.mu.Lock()
	o, ok := s.offers[q.Offer]
	s.mu.Unlock()
	if !ok {
		return nil, ErrGone
	}
	if q.File < 0 || q.File >= len(o.files) {
		return nil, fmt.Errorf("%w: file %d of %d", ErrProtocol, q.File, len(o.files))
	}
	f := o.files[q.File]
	if q.Bytes <= 0 || q.Bytes > MaxRead || q.At < 0 || q.At > f.Size || int64(q.Bytes) > f.Size-q.At {
		return nil, fmt.Errorf("%w: %d bytes from %d on of a file of %d", ErrProtocol, q.Bytes, q.At, f.Size)
	}
	in, err := s.fs.Open(s.fs.PathJoin(o.dir, f.Name))
	if err != nil {
		return nil, err
	}
	b := c.Buffer(q.Bytes)
	_, err = in.ReadAt(b, q.At)
	if err = errors.Join(err, in.Close()); err != nil {
		return nil, err
	}
	s.Pace.Wait(len(b))
	o.given(len(b))
	return b, nil
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

// Pace bounds how many bytes are read a second. Safe for concurrent use.
type Pace struct {
	Rate int64
	mu   sync.Mutex
	next time.Time // when the next bytes may be read
}

// Wait returns when it is time for so many bytes more.
func (p *Pace) Wait(bytes int) {
	p.mu.Lock()
	now := time.Now()
	if p.next.Before(now) {
		p.next = now
	}
	at := p.next
	p.next = at.Add(time.Duration(float64(bytes) / float64(p.Rate) * float64(time.Second)))
	p.mu.Unlock()
	if d := at.Sub(now); d > 0 {
		time.Sleep(d)
	}
}
