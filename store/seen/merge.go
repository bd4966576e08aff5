package seen

import (
	"math/bits"
	"slices"

	"github.com/fbfkv/fbfkv/persistence"
)

// source yields entries of a run to be, ascending by (hash, sequence).
type source interface {
	// next returns the entries that follow, some at a time so that a call for
	// each does not count; none at the end. They are valid until the next call.
	next() ([]persistence.RunEntry, error)
	close()
}

// runSource yields the entries of a run on disk.
type runSource struct {
	it     *persistence.RunIterator
	closed bool
}

func (s *runSource) next() ([]persistence.RunEntry, error) {
	if entries := s.it.Next(); len(entries) > 0 {
		return entries, nil
	}
	s.closed = true
	return nil, s.it.Close()
}

func (s *runSource) close() {
	if !s.closed {
		s.closed = true
		_ = s.it.Close() // the merge has failed for another reason
	}
}

func closeSources(sources []source) {
	for _, s := range sources {
		s.close()
	}
}

// paceRecords is after how many records a merge, which is work for a whole core,
// gives way: a fraction of a millisecond, so that a goroutine that serves clients
// never waits for a scheduler's time slice. (It does not sleep: while all processors
// are busy a sleep takes many times as long as asked for, and unsaved data piles up.)
const paceRecords = 2048

// mergeSources calls add for the entries of all sources in order, until it returns an
// error, and giveWay, if there is one, after each paceRecords of them. An entry that
// several sources have is added once.
func mergeSources(sources []source, giveWay func(), add func(hash, seq uint64, value []byte) error) error {
	t, err := newLoserTree(sources)
	if err != nil {
		return err
	}
	first, hash, seq := true, uint64(0), uint64(0)
	for n := 1; len(t.heads) > 0; n++ {
		if giveWay != nil && n%paceRecords == 0 {
			giveWay()
		}
		e := t.least()
		if first || e.Hash != hash || e.Seq != seq {
			if err := add(e.Hash, e.Seq, e.Value); err != nil {
				return err
			}
		}
		first, hash, seq = false, e.Hash, e.Seq
		if err := t.advance(); err != nil {
			return err
		}
	}
	return nil
}

// loserTree finds the least of the present entries of some sources (Knuth, The Art
// of Computer Programming, volume 3, section 5.4.1). They are the leaves of a
// binary tree, in each of whose nodes two of them were compared. The node keeps the
// loser, the greater one, while the other goes on to the node above. So the least
// one, when its source goes to the next entry, is compared only with the losers on
// its way to the root: with four of sixteen.
type loserTree struct {
	heads []mergeHead // of the sources that have entries left
	// nodes has the least one of all at 0, the root at 1 and the children of
	// node i at 2i and 2i+1; what would be node len(heads)+i is the leaf heads[i].
	nodes []mergeNode
}

// mergeHead is where a source has got to.
type mergeHead struct {
	entries []persistence.RunEntry
	at      int // of the present one in entries
	source  source
}

func (h *mergeHead) entry() *persistence.RunEntry { return &h.entries[h.at] }

// mergeNode is an entry in the tree; its hash is nearly always all that is
// compared.
type mergeNode struct {
	hash uint64
	head uint64 // an index, as wide as the hash so that both are exchanged alike
}

func newLoserTree(sources []source) (*loserTree, error) {
	t := &loserTree{nodes: make([]mergeNode, len(sources))}
	for _, s := range sources {
		entries, err := s.next()
		if err != nil {
			return nil, err
		}
		if len(entries) > 0 {
			t.heads = append(t.heads, mergeHead{entries: entries, source: s})
		}
	}
	t.build()
	return t, nil
}

// build fills the tree.
func (t *loserTree) build() {
	n := len(t.heads)
	if n == 0 {
		return
	}
	winners := make([]mergeNode, 2*n)
	for i := range t.heads {
		winners[n+i] = mergeNode{hash: t.heads[i].entry().Hash, head: uint64(i)}
	}
	for i := n - 1; i > 0; i-- {
		winner, loser := winners[2*i], winners[2*i+1]
		if t.less(loser, winner) {
			winner, loser = loser, winner
		}
		winners[i], t.nodes[i] = winner, loser
	}
	t.nodes[0] = winners[1]
}

func (t *loserTree) less(a, b mergeNode) bool {
	return a.hash < b.hash || a.hash == b.hash && t.heads[a.head].entry().Seq < t.heads[b.head].entry().Seq
}

// least returns the least of the present entries; there must be one.
func (t *loserTree) least() *persistence.RunEntry { return t.heads[t.nodes[0].head].entry() }

// advance takes the least entry's source to its next one.
func (t *loserTree) advance() error {
	x := t.nodes[0]
	h := &t.heads[x.head]
	if h.at++; h.at == len(h.entries) {
		entries, err := h.source.next()
		if err != nil {
			return err
		}
		if len(entries) == 0 {
			t.heads = slices.Delete(t.heads, int(x.head), int(x.head)+1)
			t.build()
			return nil
		}
		h.entries, h.at = entries, 0
	}
	x.hash = h.entry().Hash
	for i := (x.head + uint64(len(t.heads))) / 2; i > 0; i /= 2 {
		node := &t.nodes[i]
		// The comparison of hashes is not a branch, which would be mispredicted
		// every other time.
		_, less := bits.Sub64(node.hash, x.hash, 0)
		if node.hash == x.hash {
			less = 0
			if t.less(*node, x) {
				less = 1
			}
		}
		hash, head := (node.hash^x.hash)&-less, (node.head^x.head)&-less
		node.hash, x.hash = node.hash^hash, x.hash^hash
		node.head, x.head = node.head^head, x.head^head
	}
	t.nodes[0] = x
	return nil
}
