package cluster

import (
	"errors"
	"fmt"

	"github.com/fbfkv/fbfkv/cluster/wire"
	"github.com/fbfkv/fbfkv/internal/longlock"
	"github.com/fbfkv/fbfkv/persistence/disk"
	"github.com/fbfkv/fbfkv/store"
)

// This file answers what the nodes of another shard ask of a partition that moves there.

type (
	moveAsk struct {
		Partition uint16 `json:"partition"`
		// Behind is, of an export, the last sequence that the asking store has of the partition; of
		// a tail, the one behind which it begins.
		Behind uint64 `json:"behind,omitempty"`
		// Move is the epoch of the move, of a hand-over.
		Move uint64 `json:"move,omitempty"`
		// In the answer to received, Version is the version of the configuration that no longer
		// lets the partition come; 0: it still comes.
		Version uint64 `json:"version,omitempty"`
	}
	moveAnswer struct {
		// Offer has the file of an export, To the sequence with which the partition goes on.
		Offer *wire.Offer `json:"offer,omitempty"`
		To    uint64      `json:"to,omitempty"`
		// Last is the last sequence: that follows, of a hand-over, or that the node has received.
		Last uint64 `json:"last,omitempty"`
		// Leads and Sequence say whether the node leads, and its own last sequence of the
		// partition, of received. A leader that may still have the partition adopted, which is not
		// to come any more, does not say that it leads.
		Leads    bool   `json:"leads,omitempty"`
		Sequence uint64 `json:"sequence,omitempty"`
	}
)

// The verbs. The bytes of an exported file are read as any file's (wire.VerbRead).
const (
	moveExport   = "export"   // make a file of the partition
	moveTail     = "tail"     // what was committed since; behind the answer
	moveHandOver = "handover" // the leader of the source: refuse everybody from now on
	moveReceived = "received" // a replica of the target: how far it is
	moveArrived  = "arrived"  // the leader of the source: take in the configuration that comes along
)

// outgoing is a partition that this node gives.
type outgoing struct {
	mu     longlock.Mutex // held while it is written
	moving *store.Moving  // without a file if its Name is ""
	offer  wire.Offer     // its file
}

// errAnew: the log does not reach back to what the other node has received.
var errAnew = &wire.Refusal{Code: "anew", Text: "it must begin anew"}

// drop locks out, and does the same as forget.
func (m *Mover) drop(out *outgoing) {
	out.mu.Lock()
	defer out.mu.Unlock()
	m.forget(out)
}

// forget ends what is exported, and removes its file. It is locked.
func (m *Mover) forget(out *outgoing) {
	if out.moving == nil {
		return
	}
	out.moving.Close()
	m.o.Node.files.server.files.Withdraw(out.offer.ID)
	if out.moving.Name != "" {
		_ = m.o.Node.o.FS.Remove(m.o.Node.o.FS.PathJoin(m.dir, out.moving.Name)) // else at the next start
	}
	out.moving = nil
}

// answers has questions answered, or refused from now on.
func (m *Mover) answers(yes bool) {
	type f = func(moveAsk, *wire.Call) (moveAnswer, []byte, error)
	for verb, answer := range map[string]f{moveExport: m.export, moveTail: m.tail, moveHandOver: m.handOver,
		moveReceived: m.received, moveArrived: m.arrived} {
		v := wire.Answer(maxConfiguration, func(c *wire.Call, q moveAsk) (any, []byte, error) {
			m.mu.Lock()
			closed := m.ctx.Err() != nil
			if !closed {
				m.jobs.Add(1)
				defer m.jobs.Done()
			}
			m.mu.Unlock()
			if closed {
				return nil, nil, m.ctx.Err()
			}
			return answer(q, c)
		})
		if !yes {
			v = wire.Verb{}
		}
		m.o.Net.Answer(verb, v)
	}
}

// asks returns the configuration, if a node may ask for a partition.
func (m *Mover) asks(q moveAsk, from string) (c Configuration, peer *Member, err error) {
	c = m.o.Meta.Configuration()
	if peer = c.Member(from); peer == nil || int(q.Partition) >= c.Partitions {
		return c, nil, wire.ErrProtocol
	}
	return c, peer, nil
}

func (m *Mover) received(q moveAsk, call *wire.Call) (a moveAnswer, _ []byte, err error) {
	c, _, err := m.asks(q, call.From)
	if err != nil {
		return a, nil, err
	}
	n := m.o.Node
	m.mu.Lock()
	defer m.mu.Unlock()
	a.Leads = n.Leads() && c.Version >= q.Version
	for _, coming := range m.following {
		if coming.p != q.Partition {
			continue
		}
		if has := coming.is.Load(); has != nil {
			a.To, a.Last = has.to, has.last
		}
		a.Leads = a.Leads && q.Version == 0
	}
	a.Sequence = n.st.LastOf(q.Partition)
	return a, nil, nil
}

func (m *Mover) arrived(q moveAsk, call *wire.Call) (a moveAnswer, _ []byte, err error) {
	c, _, err := m.asks(q, call.From)
	if err != nil {
		return a, nil, err
	}
	next, err := DecodeConfiguration(call.Bytes)
	if err == nil && next.Cluster != c.Cluster {
		err = wire.ErrProtocol
	}
	if err == nil {
		m.o.Meta.learn(next)
		m.look()
		m.o.Show()
	}
	return a, nil, err
}

// gives returns the move by which a partition of this shard goes to the shard of a node that asks.
func (m *Mover) gives(q moveAsk, from string) (*Move, error) {
	c, peer, err := m.asks(q, from)
	if err != nil {
		return nil, err
	}
	move := c.Move(int(q.Partition))
	if move == nil || move.From != m.o.Shard || move.To != peer.Shard {
		return nil, fmt.Errorf("partition %d does not move there, as far as this node knows", q.Partition)
	}
	return move, nil
}

func (m *Mover) handOver(q moveAsk, call *wire.Call) (a moveAnswer, _ []byte, err error) {
	move, err := m.gives(q, call.From)
	switch { // it must be the same move: the number says until when the partition is held
	case err != nil:
		return a, nil, err
	case !m.o.Node.Leads():
		return a, nil, errors.New("it does not lead")
	case q.Move != move.Epoch:
		return a, nil, errors.New("it knows of another move of the partition")
	}
	a.Last, err = m.o.Node.st.HandOver(q.Partition, move.Epoch)
	m.o.Show()
	return a, nil, err
}

// out returns what is exported of a partition, locked.
func (m *Mover) out(q moveAsk, from string) (*outgoing, error) {
	if _, err := m.gives(q, from); err != nil {
		return nil, err
	}
	m.mu.Lock()
	out := m.outgoing[q.Partition]
	if out == nil {
		out = &outgoing{}
		m.outgoing[q.Partition] = out
	}
	m.mu.Unlock()
	out.mu.Lock()
	return out, nil
}

func (m *Mover) export(q moveAsk, call *wire.Call) (a moveAnswer, _ []byte, err error) {
	out, err := m.out(q, call.From)
	if err != nil {
		return a, nil, err
	}
	defer out.mu.Unlock()
	if out.moving != nil && out.moving.Name == "" {
		m.forget(out)
	}
	if out.moving == nil {
		if err := disk.MakeDir(m.o.Node.o.FS, m.dir); err != nil {
			return a, nil, err
		}
		if out.moving, err = m.o.Node.st.Export(q.Partition, m.dir, q.Behind, moveLog); err != nil {
			return a, nil, err
		}
		files := m.o.Node.files.server.files
		f, err := files.Sum(m.dir, out.moving.Name, func(int) {}) // memory has it: it was just written
		if err != nil {
			m.forget(out)
			return a, nil, err
		}
		out.offer = wire.Offer{ID: wire.NewOfferID(), Files: []wire.File{f}}
		files.Offer(out.offer, m.dir, func(int) {})
	}
	return moveAnswer{Offer: &out.offer, To: out.moving.To}, nil, nil
}

func (m *Mover) tail(q moveAsk, call *wire.Call) (a moveAnswer, b []byte, err error) {
	out, err := m.out(q, call.From)
	if err != nil {
		return a, nil, err
	}
	defer out.mu.Unlock()
	if out.moving == nil { // another node has given the file
		if out.moving, err = m.o.Node.st.ExportTail(q.Partition, moveLog); err != nil {
			return a, nil, err
		}
	}
	b, a.Last, err = out.moving.Tail(q.Behind, movePiece)
	if errors.Is(err, store.ErrMove) {
		m.forget(out)
		err = fmt.Errorf("%w: %w", errAnew, err)
	}
	return a, b, err
}

// validMovedName reports whether name can name a file of a partition that moves: it leads to no
// other directory.
func validMovedName(name string) bool { return validFileName("snapshots/" + name) }
