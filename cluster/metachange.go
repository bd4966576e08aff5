package cluster

import (
	"context"
	"time"

	"github.com/hashicorp/raft"

	"github.com/fbfkv/fbfkv/cluster/wire"
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
	_, err = m.ask(ctx, wire.Ask{Verb: verbChange, Bytes: b},
		func() ([]byte, error) { return nil, m.apply(c) })
	return err
}

// newest returns what whoever leads the meta group knows for the newest configuration.
func (m *Meta) newest(ctx context.Context) (c Configuration, err error) {
	b, err := m.ask(ctx, wire.Ask{Verb: verbNewest, Limit: maxConfiguration}, m.present)
	if err != nil {
		return c, err
	}
	return decodeConfiguration(b, m.level())
}

// ask asks the leader of the meta group; own is the answer if this node is it.
func (m *Meta) ask(ctx context.Context, a wire.Ask, own func() ([]byte, error)) ([]byte, error) {
	address, id := m.raft.LeaderWithID()
	switch string(id) {
	case "":
		return nil, errNoMeta
	case m.o.ID:
		return own()
	}
	a.Within = adminTime
	return m.o.Net.Ask(ctx, string(id), string(address), a)
}

// Questions to the leader of the meta group.
const (
	verbChange = "change" // to have the configuration that comes along committed
	verbNewest = "newest" // for the configuration in which all that is committed by now has been taken in
)

// serve answers the nodes that do not lead the group.
func (m *Meta) serve() {
	m.o.Net.Answer(verbChange, wire.Answer(maxConfiguration,
		func(call *wire.Call, _ struct{}) (any, []byte, error) {
			c, err := decodeConfiguration(call.Bytes, m.level())
			if err == nil {
				err = m.apply(c)
			}
			return nil, nil, err
		}))
	m.o.Net.Answer(verbNewest, wire.Answer(0, func(*wire.Call, struct{}) (any, []byte, error) {
		b, err := m.present()
		return nil, b, err
	}))
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
