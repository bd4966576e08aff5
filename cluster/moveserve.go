package cluster

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"

	"github.com/fbfkv/fbfkv/internal/longlock"
	"github.com/fbfkv/fbfkv/persistence/disk"
	"github.com/fbfkv/fbfkv/store"
)

// This file answers what the nodes of another shard ask of a partition that moves there, and has the
// connection on which they do.

// A question is a line of JSON, on a connection of KindMove, and so is the answer, behind which
// bytes may follow.
type (
	moveQuestion struct {
		// Verb is one of the verbs below.
		Verb      string `json:"verb"`
		Partition uint16 `json:"partition"`
		// Behind is, of an export, the last sequence that the asking store has of the partition; of
		// a tail, the one behind which it begins.
		Behind uint64 `json:"behind,omitempty"`
		// Move is the epoch of the move, of a hand-over.
		Move uint64 `json:"move,omitempty"`
		// Version is that of the configuration by which the partition is not to come any more, of
		// received; 0: it is.
		Version uint64 `json:"version,omitempty"`
		// Offset is where the bytes of a file begin.
		Offset int64 `json:"offset,omitempty"`
		// Configuration is the new one, of arrived.
		Configuration []byte `json:"configuration,omitempty"`
	}
	moveAnswer struct {
		Error string `json:"error,omitempty"`
		// Name and Size are those of the file of an export, To the sequence with which the partition goes on.
		Name string `json:"name,omitempty"`
		Size int64  `json:"size,omitempty"`
		To   uint64 `json:"to,omitempty"`
		// Last is the last sequence: that follows, of a hand-over, or that the node has received.
		Last uint64 `json:"last,omitempty"`
		// Leads and Sequence say whether the node leads, and its own last sequence of the
		// partition, of received. A leader that may still have the partition adopted, which is not
		// to come any more, does not say that it leads.
		Leads    bool   `json:"leads,omitempty"`
		Sequence uint64 `json:"sequence,omitempty"`
		// Anew: what the other node has received cannot be continued.
		Anew bool `json:"anew,omitempty"`
		// Bytes is how many follow.
		Bytes int `json:"bytes,omitempty"`
	}
)

// The verbs.
const (
	moveExport   = "export"   // make a file of the partition
	moveRead     = "read"     // bytes of it
	moveTail     = "tail"     // what was committed since
	moveHandOver = "handover" // the leader of the source: refuse everybody from now on
	moveReceived = "received" // a replica of the target: how far it is
	moveArrived  = "arrived"  // the leader of the source: the configuration says that it is the other shard's
)

// outgoing is a partition that this node gives.
type outgoing struct {
	mu     longlock.Mutex // held while it is written
	moving *store.Moving  // without a file if its Name is ""
}

// errAnew: the log does not reach back to what the other node has received.
var errAnew = errors.New("it must begin anew")

// drop is forget, of what is not locked.
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
	if out.moving.Name != "" {
		_ = m.o.Node.o.FS.Remove(m.o.Node.o.FS.PathJoin(m.dir, out.moving.Name)) // else at the next start
	}
	out.moving = nil
}

// serve answers questions until the connection ends.
func (m *Mover) serve(conn net.Conn, from Identity) {
	defer conn.Close()
	m.mu.Lock()
	closed := m.ctx.Err() != nil
	if !closed {
		m.jobs.Add(1)
		defer m.jobs.Done()
	}
	m.mu.Unlock()
	if closed {
		return
	}
	defer context.AfterFunc(m.ctx, func() { conn.Close() })()
	c := newMoveConn(conn)
	for {
		_ = conn.SetDeadline(time.Now().Add(idleTimeout)) // a broken connection fails below
		var q moveQuestion
		if err := c.read(&q); err != nil {
			return
		}
		_ = conn.SetDeadline(time.Now().Add(moveFileTime))
		answer, b, err := m.answer(q, from)
		if err != nil {
			answer, b = moveAnswer{Error: err.Error(), Anew: errors.Is(err, errAnew)}, nil
		}
		answer.Bytes = len(b)
		if c.write(answer, b) != nil {
			return
		}
	}
}

// answer carries out a question.
func (m *Mover) answer(q moveQuestion, from Identity) (a moveAnswer, b []byte, err error) {
	n := m.o.Node
	c := m.o.Meta.Configuration()
	peer := c.Member(from.Node)
	if peer == nil || int(q.Partition) >= c.Partitions {
		return a, nil, errProtocol
	}
	if q.Verb == moveReceived {
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
	if q.Verb == moveArrived {
		next, err := DecodeConfiguration(q.Configuration)
		if err == nil && next.Cluster != c.Cluster {
			err = errProtocol
		}
		if err == nil {
			m.o.Meta.learn(next)
			m.look()
			m.o.Show()
		}
		return a, nil, err
	}
	move := c.Move(int(q.Partition))
	if move == nil || move.From != m.o.Shard || move.To != peer.Shard {
		return a, nil, fmt.Errorf("partition %d does not move there, as far as this node knows", q.Partition)
	}
	switch q.Verb {
	case moveHandOver:
		switch { // it must be the same move: the number says until when the partition is held
		case !n.Leads():
			return a, nil, errors.New("it does not lead")
		case q.Move != move.Epoch:
			return a, nil, errors.New("it knows of another move of the partition")
		}
		a.Last, err = n.st.HandOver(q.Partition, move.Epoch)
		m.o.Show()
		return a, nil, err
	case moveExport, moveRead, moveTail:
		a, b, err = m.give(q)
		if q.Verb == moveRead {
			n.files.server.pace.wait(len(b))
		}
		return a, b, err
	}
	return a, nil, errProtocol
}

// give answers from what is exported.
func (m *Mover) give(q moveQuestion) (a moveAnswer, b []byte, err error) {
	n := m.o.Node
	m.mu.Lock()
	out := m.outgoing[q.Partition]
	if out == nil {
		out = &outgoing{}
		m.outgoing[q.Partition] = out
	}
	m.mu.Unlock()
	out.mu.Lock()
	defer out.mu.Unlock()
	if q.Verb == moveExport && out.moving != nil && out.moving.Name == "" {
		m.forget(out)
	}
	if out.moving == nil {
		switch q.Verb {
		case moveExport:
			if err = disk.MakeDir(n.o.FS, m.dir); err == nil {
				out.moving, err = n.st.Export(q.Partition, m.dir, q.Behind, moveLog)
			}
		case moveTail: // another node has given the file
			out.moving, err = n.st.ExportTail(q.Partition, moveLog)
		}
		if err != nil {
			return a, nil, err
		}
	}
	if out.moving == nil || q.Verb != moveTail && out.moving.Name == "" {
		return a, nil, errors.New("it was not exported")
	}
	path := n.o.FS.PathJoin(m.dir, out.moving.Name)
	switch q.Verb {
	case moveExport:
		info, err := n.o.FS.Stat(path)
		if err != nil {
			return a, nil, err
		}
		return moveAnswer{Name: out.moving.Name, Size: info.Size(), To: out.moving.To}, nil, nil
	case moveRead:
		f, err := n.o.FS.Open(path)
		if err != nil {
			return a, nil, err
		}
		defer f.Close()
		b = make([]byte, movePiece)
		got, err := f.ReadAt(b, q.Offset)
		if errors.Is(err, io.EOF) && got > 0 {
			err = nil
		}
		return a, b[:got], err
	}
	b, a.Last, err = out.moving.Tail(q.Behind, movePiece)
	if errors.Is(err, store.ErrMove) {
		m.forget(out)
		err = fmt.Errorf("%w: %w", errAnew, err)
	}
	return a, b, err
}

// moveConn is a connection on which questions are asked or answered.
type moveConn struct {
	net.Conn
	r *bufio.Reader
}

func newMoveConn(c net.Conn) *moveConn {
	return &moveConn{Conn: c, r: bufio.NewReaderSize(c, maxMoveLine)}
}

// read reads a line.
func (c *moveConn) read(v any) error {
	line, err := c.r.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		return errProtocol
	}
	if err != nil {
		return err
	}
	return decodeStrictly(line, v)
}

func (c *moveConn) write(v any, behind []byte) error {
	b, err := json.Marshal(v)
	if err == nil {
		_, err = c.Conn.Write(slices.Concat(b, []byte("\n"), behind))
	}
	return err
}

// ask asks, and returns the answer and the bytes behind it.
func (c *moveConn) ask(q moveQuestion, limit time.Duration) (a moveAnswer, b []byte, err error) {
	_ = c.SetDeadline(time.Now().Add(limit)) // a broken connection fails below
	if err := c.write(q, nil); err != nil {
		return a, nil, err
	}
	if err := c.read(&a); err != nil {
		return a, nil, err
	}
	switch {
	case a.Anew:
		return a, nil, fmt.Errorf("%w: the other node answers: %.200s", errAnew, a.Error)
	case a.Error != "":
		return a, nil, fmt.Errorf("the other node answers: %.200s", a.Error)
	case a.Bytes < 0 || a.Bytes > maxMessage:
		return a, nil, errProtocol
	}
	b = make([]byte, a.Bytes)
	_, err = io.ReadFull(c.r, b)
	return a, b, err
}

// validMovedName reports whether a name is that of a file of a partition that moves: it leads to no other
// directory.
func validMovedName(name string) bool { return validFileName("snapshots/" + name) }
