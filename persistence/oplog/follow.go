package oplog

import (
	"errors"
	"io"
	"math"
	"slices"

	"github.com/fbfkv/fbfkv/persistence/disk"
)

// ErrBookmark: the file that a bookmark is in was given up. The reader must begin anew.
var ErrBookmark = errors.New("the op log was given up where it was to be read on")

// errFollowed ends the reading of a file.
var errFollowed = errors.New("followed")

// Bookmark is where Follow reads on: behind a record. It ends with the process.
type Bookmark struct {
	file  uint64
	at    int64  // 0: at the beginning of the file
	tag   uint64 // of the file, unless at is 0
	entry uint64 // behind the entry with this index, of a replicated log (followentries.go); 0: as above
}

// BookmarkAt returns a bookmark before all sections of some partitions that the log has and that have
// at least a sequence: from, by partition.
func (l *Log) BookmarkAt(from map[uint16]uint64) Bookmark {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.closed {
		for p, seq := range from {
			if s.last[p] >= seq {
				return Bookmark{file: s.num}
			}
		}
	}
	return Bookmark{file: l.current.num}
}

// Follow calls fn for the records behind a bookmark, in the order of the log, until it returns an error,
// which Follow returns. fn borrows the record. Follow sees what was written, which need not be
// durable, and reads nothing else, while all else goes on. It returns a bookmark behind the last
// record that fn took. Of a replicated log it sees what is committed by now, and may see a record once more.
//
// ErrBookmark: the log behind the bookmark was trimmed. Records that were trimmed before are left
// out.
func (l *Log) Follow(m Bookmark, fn func(record []byte) error) (Bookmark, error) {
	if l.isClosed.Load() {
		return m, disk.ErrClosed
	}
	if l.o.Sections != nil {
		return l.followEntries(m, fn)
	}
	for {
		nums := l.live()
		if !slices.Contains(nums, m.file) {
			return m, ErrBookmark
		}
		ended, err := l.followFile(&m, fn)
		switch newest := nums[len(nums)-1] == m.file; {
		case !ended && err == nil && newest:
			return m, nil
		case !ended && !slices.Contains(l.live(), m.file):
			return m, ErrBookmark // it is being written again, under another number
		case err != nil:
			return m, err
		case !ended:
			return m, disk.Corruptf("%s of the op log is damaged behind byte %d", fileName(m.file), m.at)
		}
		m = Bookmark{file: m.file + 1}
	}
}

// followFile is Follow in one file. It reports whether that ended in order.
func (l *Log) followFile(m *Bookmark, fn func(record []byte) error) (ended bool, err error) {
	f, err := l.o.FS.Open(l.path(fileName(m.file)))
	if err != nil {
		return false, disk.Wrap("read the op log", err)
	}
	defer f.Close()
	h, err := readHeader(f, m.file)
	if err != nil {
		return false, disk.Wrap("read the op log", err)
	}
	if m.at != 0 && m.tag != h.tag {
		return false, ErrBookmark
	}
	from := max(m.at, headerSize)
	base := from - from%disk.Block
	r := follower{Reader: io.NewSectionReader(f, base, math.MaxInt64-base), base: base, header: h, m: m,
		fn: fn}
	tail, err := disk.Scan(&r, int(from-base), r.parse, r.chunk)
	if err == nil || errors.Is(err, errFollowed) {
		return tail.Valid == math.MaxInt64, r.err
	}
	return false, disk.Wrap("read the op log", err)
}

// follower reads one file from a block on.
type follower struct {
	io.Reader
	base    int64 // offset of the block in the file
	header  header
	m       *Bookmark
	fn      func(record []byte) error
	payload []byte // of the record at hand
	done    bool   // there is nothing more to read
	err     error  // of fn
}

// Read ends the scan where there is no more log: behind it the file holds what it was used for before.
func (r *follower) Read(b []byte) (int, error) {
	if r.done {
		return 0, errFollowed
	}
	return r.Reader.Read(b)
}

func (r *follower) parse(b []byte, at int64) disk.Chunk {
	c := r.header.parseChunk(b, r.base+at)
	r.done = r.done || c.Kind == disk.Bad
	return c
}

// chunk takes one valid chunk.
func (r *follower) chunk(part disk.Part, at int64, payload []byte) {
	if r.err != nil {
		return
	}
	if part.Begins() {
		r.payload = r.payload[:0]
	}
	if r.payload = append(r.payload, payload...); !part.Ends() {
		return
	}
	if r.err = r.fn(r.payload); r.err != nil {
		r.done = true
		return
	}
	r.m.at, r.m.tag = r.base+at+int64(len(payload)), r.header.tag
}
