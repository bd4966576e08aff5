package cluster

import (
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/cluster/wire"
	"github.com/fbfkv/fbfkv/persistence"
	"github.com/fbfkv/fbfkv/persistence/disk"
)

// A directory can go back in time: a snapshot of the machine or a copy of the files is put back. It
// lacks operations that it helped to acknowledge, and its vote could make a leader of a node that
// lacks them, too (R9). It cannot know that itself. So every start raises a number in the directory
// (its low bits are random), and each node remembers of each voter the highest number, and the last
// committed entry that it has acknowledged. The leader knows that exactly, and tells the others by
// an entry of the log, once a second while it changes. A directory that shows a lower number, or
// whose log ended before such an entry when it was started, is refused.
//
// The number alone proves little: the copy of a running node starts with one that nobody has seen.
// And a node that was started a moment ago may acknowledge more before others hear of the start, so
// that what counts against the end of its log is what it acknowledged before that start.

// place is an entry of the log: places are ordered as Raft orders the ends of logs, by the term first.
type place struct {
	Term  uint64 `json:"term"`
	Index uint64 `json:"index"`
}

func (p place) compare(o place) int {
	return cmp.Or(cmp.Compare(p.Term, o.Term), cmp.Compare(p.Index, o.Index))
}

// unknownEnd is the end of a log that its node has not opened yet: it proves neither that the directory is
// the newest one nor that it is older.
var unknownEnd = place{math.MaxUint64, math.MaxUint64}

// excludes reports whether no log can have entries at both places: the terms in a log ascend.
func (p place) excludes(o place) bool {
	byIndex, byTerm := cmp.Compare(p.Index, o.Index), cmp.Compare(p.Term, o.Term)
	return byTerm != 0 && byTerm != byIndex
}

func later(a, b place) place {
	if a.compare(b) < 0 {
		return b
	}
	return a
}

// Past is how far a node's directory has been.
type Past struct {
	// Starts is the highest number of a start.
	Starts uint64 `json:"starts"`
	// Acked is the last committed entry that the node has acknowledged since that start, Before before it.
	Acked  place `json:"acked"`
	Before place `json:"before"`
}

// with joins two accounts of one directory.
func (p Past) with(o Past) Past {
	if o.Starts > p.Starts {
		p, o = o, p
	}
	if p.Starts == o.Starts {
		p.Acked = later(p.Acked, o.Acked)
	} else {
		p.Before = later(p.Before, o.Acked)
	}
	p.Before = later(p.Before, o.Before)
	return p
}

// before returns what the node's log must have had when it was started with a number; unknownEnd: it
// cannot be the node's directory.
func (p Past) before(starts uint64) place {
	switch {
	case starts < p.Starts:
		return unknownEnd
	case starts > p.Starts:
		return later(p.Before, p.Acked)
	}
	return p.Before
}

// Witness is what a node remembers of the others' pasts. Safe for concurrent use.
type Witness struct {
	// a file of their own: a vote would wait for the fsyncs of a save in that of the votes
	values *persistence.Values

	mu    sync.Mutex
	pasts map[string]Past // by the nodes' ids
	dirty chan struct{}
	// refresh is refreshBy's.
	refresh func()
}

// witnessValue is the name of the value that has the pasts.
const witnessValue = "pasts"

// maxPasts bounds the nodes that are remembered. Those that are no members any more are forgotten (KeepOnly).
const maxPasts = 4 * MaxMembers

// OpenWitness reads what a data directory says of the other nodes, in its file WITNESS; nil is the
// operating system's file system.
func OpenWitness(fsys vfs.FS, dir string) (*Witness, error) {
	if fsys == nil {
		fsys = vfs.Default
	}
	values, err := persistence.OpenWitness(fsys, dir)
	if err != nil {
		return nil, err
	}
	w := &Witness{values: values, pasts: map[string]Past{}, dirty: make(chan struct{}, 1)}
	b, err := values.Get(witnessValue)
	if err == nil && len(b) > 0 {
		err = wire.Decode(b, &w.pasts)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%w: what is remembered of other nodes: %w",
			persistence.ErrCorrupt, err), values.Close())
	}
	return w, nil
}

// Close closes the file.
func (w *Witness) Close() error { return w.values.Close() }

// refreshBy has f called before a node is judged, to add what a leader knows that is not here yet;
// nil: nothing.
func (w *Witness) refreshBy(f func()) {
	w.mu.Lock()
	w.refresh = f
	w.mu.Unlock()
}

// meet judges a node that shows itself in a handshake.
func (w *Witness) meet(i identity) *refusal {
	if w == nil {
		return nil
	}
	w.mu.Lock()
	refresh := w.refresh
	w.mu.Unlock()
	if refresh != nil {
		refresh()
	}
	id := i.String()
	w.mu.Lock()
	defer w.mu.Unlock()
	had := w.pasts[id].before(i.starts)
	switch {
	case had == unknownEnd || i.end.compare(had) < 0:
		return &refusal{code: olderDirectory, charge: charge{i.starts, had}}
	case i.end == unknownEnd && had != place{}:
		return &refusal{code: unknownKind}
	}
	w.learn(id, Past{Starts: i.starts})
	return nil
}

// isCurrent reports whether no later start of a node is known than that with a number.
func (w *Witness) isCurrent(id string, starts uint64) bool {
	if w == nil {
		return true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return starts >= w.pasts[id].Starts
}

// Learn adds what is known of a node.
func (w *Witness) Learn(id string, p Past) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.learn(id, p)
}

// learn adds what is known of a node. The lock is held.
func (w *Witness) learn(id string, p Past) {
	was, known := w.pasts[id]
	now := was.with(p)
	if now == was || !known && len(w.pasts) >= maxPasts {
		return
	}
	w.pasts[id] = now
	select {
	case w.dirty <- struct{}{}:
	default:
	}
}

// of returns what is known of a node.
func (w *Witness) of(id string) Past {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.pasts[id]
}

// KeepOnly forgets nodes that are no members: their ids never come back.
func (w *Witness) KeepOnly(c *Configuration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.pasts, func(id string, _ Past) bool { return c.Member(id) == nil })
}

// keep makes what is known durable whenever there is news, until stop is closed.
func (w *Witness) keep(stop <-chan struct{}) error {
	for {
		select {
		case <-stop:
			return nil
		case <-w.dirty:
		}
		if err := w.save(); err != nil {
			return fmt.Errorf("what is remembered of other nodes cannot be kept: %w", err)
		}
	}
}

// save makes what is known durable.
func (w *Witness) save() error {
	w.mu.Lock()
	b, err := json.Marshal(w.pasts)
	w.mu.Unlock()
	if err != nil {
		return err
	}
	return w.values.Set(witnessValue, b)
}

// The body of an entry that tells of pasts, for each node:
//
//	node, 20 bytes | starts u64 | acked: term u64, index u64 | before: term u64, index u64
const pastSize = 20 + 8 + 4*8

// encodePasts returns the body of an entry.
func encodePasts(pasts map[string]Past) (b []byte, err error) {
	for _, id := range slices.Sorted(maps.Keys(pasts)) {
		node, err := decodeID(id)
		if err != nil {
			return nil, err
		}
		p := pasts[id]
		b = append(b, node[:]...)
		for _, n := range []uint64{p.Starts, p.Acked.Term, p.Acked.Index, p.Before.Term, p.Before.Index} {
			b = binary.BigEndian.AppendUint64(b, n)
		}
	}
	return b, nil
}

// decodePasts reads the body of an entry.
func decodePasts(b []byte) (map[string]Past, error) {
	if len(b)%pastSize != 0 || len(b) > MaxMembers*pastSize {
		return nil, disk.Corruptf("an entry that tells of nodes has %d bytes", len(b))
	}
	pasts := make(map[string]Past, len(b)/pastSize)
	for ; len(b) > 0; b = b[pastSize:] {
		n := func(i int) uint64 { return binary.BigEndian.Uint64(b[20+8*i:]) }
		pasts[hex.EncodeToString(b[:20])] = Past{n(0), place{n(1), n(2)}, place{n(3), n(4)}}
	}
	return pasts, nil
}
