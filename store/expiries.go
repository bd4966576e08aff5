package store

import "container/heap"

// expiries is a heap of keys by expiry time: the keys of a partition whose
// expiry changed since the last checkpoint wrote it into the index on disk.
type expiries []expiry

type expiry struct {
	at int64
	c  *counter
}

func (h expiries) Len() int { return len(h) }

func (h expiries) Less(i, j int) bool { return h[i].at < h[j].at }

func (h expiries) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

func (h *expiries) Push(x any) { *h = append(*h, x.(expiry)) }

func (h *expiries) Pop() any {
	old := *h
	n := len(old) - 1
	x := old[n]
	*h = old[:n]
	return x
}

func (h *expiries) init() { heap.Init(h) }

func (h *expiries) add(c *counter) { heap.Push(h, expiry{at: c.expire, c: c}) }

// due removes and returns up to n keys whose expiry came by a wall time.
func (h *expiries) due(wall int64, n int) (keys []string) {
	for len(*h) > 0 && (*h)[0].at <= wall && len(keys) < n {
		e := heap.Pop(h).(expiry)
		if e.c.expire == e.at && e.c.kind != TypeNone {
			keys = append(keys, e.c.key())
		}
	}
	return keys
}
