package acl

import (
	"slices"
	"sync"
	"time"
)

// Entry is one denial in ACL LOG.
type Entry struct {
	Reason  Reason
	Context string // toplevel or multi
	Object  string // the command, the key, or the command that failed to log in
	User    string
	Client  string // as CLIENT INFO describes it

	ID      int64     // of the first of those that Count counts, in the order in which they came
	Count   int64     // how often the same happened
	Created time.Time // when it did first
	Time    time.Time // when it did last
}

// The ways of ACL LOG to merge, as in Redis.
const (
	mergeWithin = time.Minute // equal entries closer to each other are one
	mergeAmong  = 10          // of so many latest
)

// LogLength is how many entries a Log keeps.
const LogLength = 128

// maxObject bounds the memory of an entry: a key may be long.
const maxObject = 1024

// Log keeps the latest denials. The zero value is empty; it is safe for concurrent use.
type Log struct {
	mu      sync.Mutex
	entries []*Entry // latest first
	next    int64    // ID
}

// Add enters a denial, or counts it with an equal one of the last minute.
func (l *Log) Add(e Entry) {
	e.Count, e.Created = 1, e.Time
	e.Object = e.Object[:min(len(e.Object), maxObject)]
	e.User = e.User[:min(len(e.User), maxObject)]
	l.mu.Lock()
	defer l.mu.Unlock()
	e.ID = l.next
	for i, old := range l.entries[:min(len(l.entries), mergeAmong)] {
		if old.same(&e) {
			e.Count += old.Count
			e.ID, e.Created = old.ID, old.Created
			l.entries = slices.Delete(l.entries, i, i+1)
			break
		}
	}
	if e.ID == l.next {
		l.next++
	}
	l.entries = slices.Insert(l.entries, 0, &e)
	l.trim()
}

// same reports whether two entries are one that happened twice.
func (e *Entry) same(other *Entry) bool {
	return e.Reason == other.Reason && e.Context == other.Context && e.Object == other.Object &&
		e.User == other.User &&
		other.Time.Sub(e.Time) <= mergeWithin
}

// trim drops the oldest entries beyond the limit; l.mu is held.
func (l *Log) trim() {
	if len(l.entries) > LogLength {
		clear(l.entries[LogLength:])
		l.entries = l.entries[:LogLength]
	}
}

// Latest returns up to n entries, the latest first.
func (l *Log) Latest(n int) []Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := make([]Entry, min(max(n, 0), len(l.entries)))
	for i := range list {
		list[i] = *l.entries[i]
	}
	return list
}

// Reset drops all entries.
func (l *Log) Reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries = nil
}
