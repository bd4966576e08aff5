package server

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/fbfkv/fbfkv/commands"
)

// pause is the state of CLIENT PAUSE; it needs the command table.
type pause struct {
	until atomic.Int64 // unix nanoseconds; 0: none
	held  atomic.Int64 // clients that wait for its end
	table *commands.Table

	mu         sync.Mutex
	writesOnly bool
	changed    chan struct{} // closed at the next change
}

// active reports whether there may be a pause; it is asked for every request.
func (p *pause) active() bool { return p.until.Load() != 0 }

// set begins a pause, or ends it with a time that is past.
func (p *pause) set(until time.Time, writesOnly bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.changed != nil {
		close(p.changed)
		p.changed = nil
	}
	if !until.After(time.Now()) {
		p.until.Store(0)
		return
	}
	p.changed = make(chan struct{})
	p.writesOnly = writesOnly
	p.until.Store(until.UnixNano())
}

// holds returns for how long a request has to wait unless the pause changes
// before; 0: not at all.
func (p *pause) holds(args [][]byte) (wait time.Duration, changed <-chan struct{}) {
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
	// CLIENT passes, or nobody could end the pause.
	if c := p.table.Get(args[0]); c != nil && c.Name == "client" || p.writesOnly && !p.table.MayWrite(args) {
		return 0, nil
	}
	return wait, p.changed
}

// wait delays a request for as long as clients are paused. What came before it
// is answered first, by flush. It fails if flush does, or once stop is closed.
func (p *pause) wait(args [][]byte, flush func() error, stop <-chan struct{}) error {
	for {
		wait, changed := p.holds(args)
		if wait == 0 {
			return nil
		}
		err := flush()
		if err != nil {
			return err
		}
		p.held.Add(1)
		timer := time.NewTimer(wait)
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
