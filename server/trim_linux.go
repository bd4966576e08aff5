package server

import (
	"slices"
	"sync"

	"github.com/fbfkv/fbfkv/resp"
)

// readerStack keeps readers, whose buffers are as large as the load needed, to be
// used again; the one used last comes first. It remembers how few it held at
// least, and trim drops as many: those that nobody needed since the trim before.
// It is not safe for concurrent use.
type readerStack struct {
	list  []*resp.Reader
	least int // since the last trim
}

// maxReaders is how many readers a worker keeps for later rounds.
const maxReaders = maxEvents

// get returns a reader, a new one if there is none.
func (s *readerStack) get() *resp.Reader {
	n := len(s.list) - 1
	if n < 0 {
		return resp.NewReader(nil, resp.Limits{})
	}
	r := s.list[n]
	s.list = s.list[:n]
	s.least = min(s.least, n)
	return r
}

// put takes a reader that nobody uses any more.
func (s *readerStack) put(r *resp.Reader) {
	if len(s.list) < maxReaders {
		s.list = append(s.list, r)
	}
}

// trim drops what was kept all the time since the last trim, and returns how
// many bytes that are.
func (s *readerStack) trim() (bytes int64) {
	for _, r := range s.list[:s.least] {
		bytes += int64(r.Memory())
	}
	rest := s.list[len(s.list):cap(s.list)]
	clear(rest) // of readers taken: they belong to connections now
	s.list = slices.Delete(s.list, 0, s.least)
	s.least = len(s.list)
	return bytes
}

// trim lets go of memory that the worker did not need since the last trim: of
// readers that it kept, and if it has served nothing, of its batch and its replies.
// It returns how many bytes that are; none while the worker is serving.
func (w *worker) trim() (bytes int64) {
	if !w.mu.TryLock() {
		return 0
	}
	defer w.mu.Unlock()
	bytes = w.readers.trim()
	if held := w.round.Memory() + w.replies.Cap(); !w.served && held > 0 {
		w.newRound()
		w.replies = new(resp.Writer)
		bytes += int64(held)
	}
	w.served = false
	return bytes
}

// runningWorkers are the shared workers there are. Safe for concurrent use.
type runningWorkers struct {
	mu   sync.Mutex
	list []*worker
}

func (r *runningWorkers) add(w *worker) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, w)
}

func (r *runningWorkers) remove(w *worker) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.Index(r.list, w)
	r.list = slices.Delete(r.list, i, i+1)
}

// trim lets go of what its workers kept and did not need since the last call.
func (l *eventLoop) trim() (bytes int64) {
	if l == nil {
		return 0
	}
	l.running.mu.Lock()
	defer l.running.mu.Unlock()
	for _, w := range l.running.list {
		bytes += w.trim()
	}
	return bytes
}
