// Package tracking tells clients which keys have changed, so that they can forget what they have cached:
// CLIENT TRACKING in BCAST mode. Nothing is kept of what a client has read.
//
// A [Hub] is told of changes by the store, under the lock of the key's partition, and only notes them. Its
// goroutine sends each client one message for all that was noted since its last look. Where it cannot tell
// which keys, or they are too many, the message says "all".
package tracking

import (
	"bytes"
	"sync"
	"time"
	"unsafe"

	"github.com/fbfkv/fbfkv/resp"
)

// World is what a Hub needs to know.
type World struct {
	// Tell begins to tell of changed keys, nil for all, and whose change it is; Tell(nil) ends it.
	Tell func(to func(key []byte, source int64))
	// Changed returns a channel that is closed when another node may have begun to answer for some keys;
	// nil: there are no other nodes.
	Changed func() <-chan struct{}
	// Stale reports whether changes may not come here any more; nil: they always do.
	Stale func() bool
}

// Client is a client that is told of changes. It must not change once it has joined.
type Client struct {
	// Prefixes are what the keys begin with of which it is told.
	Prefixes [][]byte
	// Own, unless it is 0, is the source of whose changes it is not told.
	Own int64
	// May reports whether it may know of a key.
	May func(key []byte) bool
	// Send sends it a message, and must not wait.
	Send func(message []byte)
}

// All is the message that any key may have changed.
var All = []byte(">2\r\n$10\r\ninvalidate\r\n_\r\n")

// maxNoted bounds the bytes of notes until the goroutine looks.
const maxNoted = 4 << 20

// Hub tells clients of changes. Its zero value has none. It must not be copied and is safe for
// concurrent use.
type Hub struct {
	mu      sync.Mutex
	clients []*Client
	quit    chan struct{} // of the goroutine, which is there while there are clients

	notes notes
}

// notes are the changes that were noted since the goroutine's last look.
type notes struct {
	mu    sync.Mutex
	all   bool
	keys  []byte // one after another
	noted []noted
	wake  chan struct{} // holds one token while there is something
}

// noted is one change.
type noted struct {
	length int // of the key
	source int64
}

// Join tells a client of what changes from now on.
func (h *Hub) Join(c *Client, w World) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.clients = append(h.clients, c); len(h.clients) > 1 {
		return
	}
	h.quit = make(chan struct{})
	h.notes.begin()
	var changed <-chan struct{}
	if w.Changed != nil {
		changed = w.Changed()
	}
	w.Tell(h.notes.add)
	go h.run(w, changed, h.quit)
}

// Leave ends what Join began.
func (h *Hub) Leave(c *Client, w World) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, other := range h.clients {
		if other != c {
			continue
		}
		h.clients = append(append([]*Client(nil), h.clients[:i]...), h.clients[i+1:]...)
		if len(h.clients) == 0 {
			w.Tell(nil)
			close(h.quit)
		}
		return
	}
}

// Clients returns how many clients there are.
func (h *Hub) Clients() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.clients)
}

// staleEvery is how often the Hub asks whether changes still come.
const staleEvery = time.Second

// run tells clients of changes until quit is closed.
func (h *Hub) run(w World, changed <-chan struct{}, quit <-chan struct{}) {
	var tick <-chan time.Time
	if w.Stale != nil {
		t := time.NewTicker(staleEvery)
		defer t.Stop()
		tick = t.C
	}
	for {
		select {
		case <-quit:
			return
		case <-h.notes.wake:
		case <-changed:
			changed = w.Changed() // before clients are told: what changes after that is told again
			h.notes.addAll()
		case <-tick:
			if !w.Stale() {
				continue
			}
			h.notes.addAll()
		}
		h.tell()
	}
}

// begin forgets what was noted for clients that have left.
func (n *notes) begin() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.all, n.keys, n.noted = false, nil, nil
	if n.wake == nil {
		n.wake = make(chan struct{}, 1)
	}
}

// add notes a change of a key, or of all. It runs under the lock of a partition.
func (n *notes) add(key []byte, source int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.all:
		return
	case key == nil || len(n.keys)+len(key)+len(n.noted)*int(unsafe.Sizeof(noted{})) > maxNoted:
		n.all, n.keys, n.noted = true, nil, nil
	default:
		n.keys, n.noted = append(n.keys, key...), append(n.noted, noted{len(key), source})
		if len(n.noted) > 1 {
			return
		}
	}
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

func (n *notes) addAll() { n.add(nil, 0) }

// take returns the changes, and begins anew.
func (n *notes) take() (all bool, keys []byte, list []noted) {
	n.mu.Lock()
	defer n.mu.Unlock()
	all, keys, list = n.all, n.keys, n.noted
	n.all, n.keys, n.noted = false, nil, nil
	return all, keys, list
}

// change is a key that has changed.
type change struct {
	key    []byte
	source int64 // 0: several, or none
}

// changesOf returns each key once.
func changesOf(keys []byte, list []noted) []change {
	var changes []change
	at := make(map[string]int, len(list))
	for _, n := range list {
		key := keys[:n.length]
		keys = keys[n.length:]
		i, again := at[string(key)]
		switch {
		case !again:
			at[string(key)] = len(changes)
			changes = append(changes, change{key, n.source})
		case changes[i].source != n.source:
			changes[i].source = 0
		}
	}
	return changes
}

// tell sends every client what was noted.
func (h *Hub) tell() {
	all, keys, list := h.notes.take()
	h.mu.Lock()
	clients := h.clients
	h.mu.Unlock()
	if all {
		for _, c := range clients {
			c.Send(All)
		}
		return
	}
	changes := changesOf(keys, list)
	for _, c := range clients {
		if message := c.message(changes); message != nil {
			c.Send(message)
		}
	}
}

// message renders the changes for a client; nil: there are none for it.
func (c *Client) message(changes []change) []byte {
	var body resp.Writer
	n := 0
	for _, ch := range changes {
		if c.wants(ch) {
			body.Bulk(ch.key)
			n++
		}
	}
	if n == 0 {
		return nil
	}
	w := resp.Writer{Proto: 3}
	w.Push(2)
	w.BulkString("invalidate")
	w.Array(n)
	return append(w.Bytes(), body.Bytes()...)
}

// wants reports whether a client is told of a change.
func (c *Client) wants(ch change) bool {
	if c.Own != 0 && ch.source == c.Own {
		return false
	}
	for _, prefix := range c.Prefixes {
		if bytes.HasPrefix(ch.key, prefix) {
			return c.May(ch.key)
		}
	}
	return false
}
