package compare

// mapBytes is about what the map and the queue take per id: 24 bytes a slot, of
// which deletions leave half unused, and 16 in the queue.
const mapBytes = 72

// exactWindow is a map from id to its time, and the ids in order of insertion
// so that the oldest are found and deleted, a few at every insert. It
// has no false positives.
type exactWindow struct {
	window int64
	times  map[ID]int64
	queue  []ID // circular
	head   int  // oldest
	length int
}

func exactMap() Contestant {
	return Contestant{
		Name:  "exact map",
		Bytes: func(ids uint64) uint64 { return ids * mapBytes },
		New: func(ids uint64) (Window, error) {
			return &exactWindow{window: int64(ids), times: map[ID]int64{}, queue: make([]ID, ids+2*Block)}, nil
		},
	}
}

// expire deletes what is more than a window old.
func (w *exactWindow) expire(now int64) {
	for w.length > 0 {
		id := w.queue[w.head]
		if w.times[id]+w.window >= now {
			return
		}
		delete(w.times, id)
		w.length--
		if w.head++; w.head == len(w.queue) {
			w.head = 0
		}
	}
}

// push appends to the queue, which grows if more ids come than it was sized for.
func (w *exactWindow) push(id ID) {
	if w.length == len(w.queue) {
		larger := make([]ID, 2*w.length)
		n := copy(larger, w.queue[w.head:])
		copy(larger[n:], w.queue[:w.head])
		w.queue, w.head = larger, 0
	}
	at := w.head + w.length
	if at >= len(w.queue) {
		at -= len(w.queue)
	}
	w.queue[at] = id
	w.length++
}

func (w *exactWindow) CheckAndInsert(ids []ID, now int64, present []bool) {
	w.expire(now)
	for i, id := range ids {
		_, found := w.times[id]
		if present[i] = found; !found {
			w.times[id] = now
			w.push(id)
		}
	}
}

func (w *exactWindow) Insert(ids []ID, now int64) {
	w.expire(now)
	for _, id := range ids {
		w.times[id] = now
		w.push(id)
	}
}

func (w *exactWindow) Contains(id ID) bool {
	_, found := w.times[id]
	return found
}

func (w *exactWindow) Bytes() uint64 { return 0 }

func (w *exactWindow) Release() {}
