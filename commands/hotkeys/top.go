package hotkeys

import (
	"cmp"
	"container/heap"
	"slices"
)

// top finds the keys with the largest sums, with a bounded number of counters: SpaceSaving (Metwally,
// Agrawal and El Abbadi, "Efficient Computation of Frequent and Top-k Elements in Data Streams", ICDT 2005).
// A key without a counter takes over the smallest one, and its sum as what may be too much.
//
// With m counters and a sum W of all, every key whose own sum exceeds W/m has a counter, and none is wrong
// by more than W/m.
type top struct {
	most     int
	counters map[string]*counter
	heap     smallest
}

// counter is the sum of one key: at most sum, and at least sum-over.
type counter struct {
	key       string
	sum, over uint64
	at        int // in the heap
}

func newTop(most int) *top { return &top{most: most, counters: make(map[string]*counter)} }

// add adds to the sum of a key.
func (t *top) add(key []byte, n uint64) {
	if n == 0 {
		return
	}
	if c := t.counters[string(key)]; c != nil {
		c.sum += n
		heap.Fix(&t.heap, c.at)
		return
	}
	c := &counter{key: string(key), sum: n}
	if len(t.heap) >= t.most {
		old := t.heap[0]
		delete(t.counters, old.key)
		c.over, c.sum, c.at = old.sum, old.sum+n, 0
		t.heap[0] = c
		heap.Fix(&t.heap, 0)
	} else {
		heap.Push(&t.heap, c)
	}
	t.counters[c.key] = c
}

// Hot is a key and what it has at least.
type Hot struct {
	Key string
	Sum uint64
}

// hottest returns the n keys with the largest sums, as far as these are certain, the largest first.
func (t *top) hottest(n int) []Hot {
	list := make([]Hot, 0, len(t.heap))
	for _, c := range t.heap {
		list = append(list, Hot{c.key, c.sum - c.over})
	}
	slices.SortFunc(list, func(a, b Hot) int {
		return cmp.Or(cmp.Compare(b.Sum, a.Sum), cmp.Compare(a.Key, b.Key))
	})
	return list[:min(n, len(list))]
}

// smallest is a heap of counters, the smallest sum first.
type smallest []*counter

func (h smallest) Len() int           { return len(h) }
func (h smallest) Less(i, j int) bool { return h[i].sum < h[j].sum }
func (h smallest) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].at, h[j].at = i, j
}

func (h *smallest) Push(x any) {
	c := x.(*counter)
	c.at = len(*h)
	*h = append(*h, c)
}

func (h *smallest) Pop() any {
	old := *h
	c := old[len(old)-1]
	*h = old[:len(old)-1]
	return c
}
