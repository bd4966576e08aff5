package server

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/fbfkv/fbfkv/commands"
)

// pause is the state of CLIENT PAUSE.
type pause struct {
	until atomic.Int64 // unix nanoseconds; 0: none
	held  atomic.Int64 // clients that wait for its end

	mu         sync.Mutex
	writesOnly bool
	changed    chan struct{} // closed at the next change
}

// active reports whether there may be a pause; it is asked for every request.
func (p *pause) active() bool { return p.until.Load() != 0 }

// set begins a pause. One that is under way never becomes shorter, nor lets more
// pass, by another; it ends with the zero time.
func (p *pause) set(until time.Time, writesOnly bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.changed != nil {
		close(p.changed)
		p.changed = nil
	}
	if until.IsZero() {
		p.until.Store(0)
		return
	}
	end := until.UnixNano()
	if was := p.until.Load(); was > time.Now().UnixNano() {
		end, writesOnly = max(end, was), writesOnly && p.writesOnly
	}
	p.changed = make(chan struct{})
	p.writesOnly = writesOnly
	p.until.Store(end)
}

// wake lets those that are held look again whether they still are.
func (p *pause) wake() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.changed != nil {
		close(p.changed)
		p.changed = make(chan struct{})
	}
}

// holds returns for how long a client's request has to wait unless the pause
// changes before; 0: not at all.
func (p *pause) holds(client *commands.Pipeline, args [][]byte) (wait time.Duration,
	changed <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	until := p.until.Load()
	if until == 0 {
		return 0, nil
	}
	if wait = time.Until(time.Unix(0, until)); wait <= 0 {
		p.until.CompareAndSwap(until, 0)
		return 0, nil
	}
	if !client.Pausable(args, p.writesOnly) {
		return 0, nil
	}
	return wait, p.changed
}

// lookAfterHeld is how often one that is held looks whether its client is still there.
const lookAfterHeld = time.Second

// wait delays a request for as long as clients are paused. What came before it
// is answered first, by flush. It fails if flush does, once stop is closed, or once
// the client is killed or, while it is held, has left, as gone tells.
func (p *pause) wait(client *commands.Pipeline, args [][]byte, flush func() error, gone func() bool,
	stop <-chan struct{}) error {
	for held := false; ; held = true {
		wait, changed := p.holds(client, args)
		if client.Killed() || held && gone() {
			return errClosing
		}
		if wait == 0 {
			return nil
		}
		err := flush()
		if err != nil {
			return err
		}
		p.held.Add(1)
		timer := time.NewTimer(min(wait, lookAfterHeld))
		select {
		case <-timer.C:
		case <-changed:
		case <-stop:
			err = errClosing
		}
		timer.Stop()
		p.held.Add(-1)
		if err != nil {
			return err
		}
	}
}
