package cluster

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/hashicorp/raft"
)

// This file changes the configuration, from any node.

// Configure changes the cluster's configuration, whoever leads the meta group, and returns when
// the change is committed and this node knows it. Nothing is changed if fn changes nothing. fn may be
// called more than once: its own change may be what it finds. What it refuses counts once this node knows
// all that was committed before.
func (m *Meta) Configure(ctx context.Context, fn func(*Configuration) error) error {
	for caughtUp := false; ; {
		changed := m.Changed()
		old := m.Configuration()
		if old.Version == 0 {
			return errNoMeta
		}
		next, err := old.Changed(fn)
		switch {
		case err != nil && caughtUp || err == nil && next.Version == old.Version:
			return err
		case err != nil:
			if err := m.CatchUp(ctx); err != nil {
				return err
			}
			caughtUp = true
			continue
		}
		if err = m.propose(ctx, next); err == nil {
			m.learn(next)
			return nil
		}
		if !m.waitToRetry(ctx, changed) {
			return errNoMeta
		}
	}
}

// CatchUp returns when this node knows every change that was committed before the call.
func (m *Meta) CatchUp(ctx context.Context) error {
	for {
		c, err := m.newest(ctx)
		if err == nil {
			m.learn(c)
			return nil
		}
		if !m.waitToRetry(ctx, nil) {
			return errNoMeta
		}
	}
}

// retryChange is how long a change waits until it is sent again.
const retryChange = 50 * time.Millisecond

// waitToRetry waits for an event, or for long enough; false: nobody waits any more.
func (m *Meta) waitToRetry(ctx context.Context, event <-chan struct{}) bool {
	select {
	case <-event:
	case <-time.After(retryChange):
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// propose has whoever leads the meta group make a configuration the present one.
func (m *Meta) propose(ctx context.Context, c Configuration) error {
	b, err := c.Encode()
	if err != nil {
		return err
	}
	answer, err := m.ask(ctx, b, func() ([]byte, error) { return []byte(changeAccepted), m.apply(c) })
	if err == nil && string(answer) != changeAccepted {
		err = fmt.Errorf("the leader of the meta group answers %.*q", maxReason, answer)
	}
	return err
}

// newest returns what whoever leads the meta group knows for the newest configuration.
func (m *Meta) newest(ctx context.Context) (c Configuration, err error) {
	b, err := m.ask(ctx, nil, m.present)
	if err != nil {
		return c, err
	}
	return decodeConfiguration(b, m.level())
}

// ask sends whoever leads the meta group a configuration, nil: asks for the newest; own is the answer if
// this node does.
func (m *Meta) ask(ctx context.Context, b []byte, own func() ([]byte, error)) ([]byte, error) {
	address, id := m.raft.LeaderWithID()
	switch string(id) {
	case "":
		return nil, errNoMeta
	case m.o.ID:
		return own()
	}
	conn, err := m.o.Net.Dial(ctx, string(id), string(address), KindChange)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if _, err := conn.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...)); err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(conn, maxConfiguration+1))
}

// changeAccepted is the answer to a change that was committed; any other says why it was not.
const changeAccepted = "OK"

// serve answers a node that sends a changed configuration: its length, u32, and its bytes; no bytes
// ask for the newest.
func (m *Meta) serve(conn net.Conn, _ Identity) {
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(adminTime)) // a broken connection fails below
	var size [4]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil {
		return
	}
	n := binary.BigEndian.Uint32(size[:])
	if n > maxConfiguration {
		return
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(conn, b); err != nil {
		return
	}
	answer, err := m.answer(b)
	if err != nil {
		answer = []byte(err.Error()[:min(len(err.Error()), maxReason)])
	}
	_, _ = conn.Write(answer)
}

func (m *Meta) answer(b []byte) ([]byte, error) {
	if len(b) == 0 {
		return m.present()
	}
	c, err := decodeConfiguration(b, m.level())
	if err == nil {
		err = m.apply(c)
	}
	return []byte(changeAccepted), err
}

// present returns the configuration in which all that is committed by now has been taken in, as the leader.
func (m *Meta) present() ([]byte, error) {
	if err := m.raft.Barrier(m.o.Timeout).Error(); err != nil {
		return nil, err
	}
	return m.Configuration().Encode()
}

// apply has a configuration committed, as the leader.
func (m *Meta) apply(c Configuration) error {
	b, err := c.Encode()
	if err != nil {
		return err
	}
	m.applying.Lock() // one after the other: only one can follow the present version
	defer m.applying.Unlock()
	m.shorten()
	future := m.raft.ApplyLog(raft.Log{Data: b}, m.o.Timeout)
	if err := future.Error(); err != nil {
		return err
	}
	err, _ = future.Response().(error)
	return err
}
