package regions

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/fbfkv/fbfkv/resp"
	"github.com/fbfkv/fbfkv/store"
	"github.com/fbfkv/fbfkv/store/part"
)

// A Mesh finds out whether its directory is an older copy (store/proof.go). It asks each other
// region, at its address and over a connection of its own, how far that has taken this one's logs:
// once when it starts, and again whenever a request or an answer names an entry that this region
// has not got. A request alone changes nothing, since any client with the permission +region.pull
// can send it; all that it brings about is one round of questions in doubtPeriod.

// wordPositions asks for positions and their proofs, in the place of a request's first number.
const wordPositions = "POSITIONS"

const positionsArgs = 3

// writePositions appends a request as a client sends it.
func writePositions(w *resp.Writer, m *membership) {
	w.BulkStrings([]string{Command, wordPositions, strconv.FormatUint(m.group, 10), strconv.Itoa(int(m.self)),
		strconv.FormatUint(m.Incarnation, 10)})
}

// positions answers such a request.
func (s *Source) positions(args [][]byte, w *resp.Writer) {
	if len(args) != positionsArgs {
		w.Error(string(errArguments))
		return
	}
	a := numbers{rest: args}
	group, by, incarnation := a.next("group", 0, 1<<64-1),
		part.Region(a.next("region", 0, part.MaxRegions-1)), a.next("incarnation", 0, 1<<64-1)
	err := a.err
	if err == nil && !s.leads() { // which may have taken more than it has logged
		err = errNotLeader
	}
	if err == nil {
		var all []byte
		if all, err = s.Store.Positions(by, group, incarnation); err == nil {
			w.Bulk(all)
			return
		}
	}
	w.Error(replyOf(err))
}

// doubt begins another round of questions if err says that somebody names an entry that this region
// has not got.
func (m *Mesh) doubt(err error) {
	if !errors.Is(err, store.ErrAhead) {
		return
	}
	select {
	case m.doubts <- err:
	default:
	}
}

// examine asks the other regions until the Mesh is closed. While the store waits for that, they are asked
// without a pause.
func (m *Mesh) examine() {
	asked := make(map[part.Region]bool)
	for sure := m.opts.sure; ; sure = false {
		pause, retry := m.opts.doubtPeriod, m.opts.LastRetry
		if m.asking != nil && m.asking == m.opts.Store.Asking() {
			pause, retry = 0, m.opts.FirstRetry
		}
		var again <-chan time.Time
		switch {
		case sure:
			pause = 0
		case m.examineAll(asked):
			m.opts.Store.Asked(m.asking)
		default:
			again = time.After(retry)
		}
		next := time.After(pause)
		select {
		case <-m.ctx.Done():
			return
		case err := <-m.doubts:
			m.opts.Logger.Warn("a reader names a log entry that this region does not have: this region "+
				"asks the others for a proof", "error", err)
			clear(asked)
		case <-again:
		}
		select {
		case <-m.ctx.Done():
			return
		case <-next:
		}
	}
}

// examineAll asks those that were not asked yet, at the same time, and reports whether all have answered.
func (m *Mesh) examineAll(asked map[part.Region]bool) bool {
	m.mu.Lock()
	var peers []*peer
	for k, p := range m.peers {
		if k.first == 0 && !asked[k.region] {
			peers = append(peers, p)
		}
	}
	m.mu.Unlock()
	errs := make([]error, len(peers))
	var wg sync.WaitGroup
	for i, p := range peers {
		wg.Go(func() { errs[i] = p.examine(m.ctx) })
	}
	wg.Wait()
	all := true
	for i, p := range peers {
		asked[p.region] = errs[i] == nil
		all = all && errs[i] == nil
	}
	return all
}

// examine asks the region for its positions, and lets the store judge them.
func (p *peer) examine(ctx context.Context) error {
	m, _, err := p.member()
	if err != nil {
		return err
	}
	links, err := p.linksTo(ctx, &m, true)
	if err != nil {
		return err
	}
	defer links.close()
	for i := range links.shards {
		l, err := links.to(ctx, links.shards[i].first())
		if err != nil {
			return err
		}
		writePositions(&l.w, &m)
		if err := l.send(p.opts.Timeout); err != nil {
			return err
		}
		b, failed, err := l.string(store.MaxPositions)
		if err = errors.Join(err, failed); err != nil {
			return err
		}
		all, err := store.DecodePositions(b)
		if err == nil {
			err = p.opts.Store.Examine(p.region, all)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
