package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fbfkv/fbfkv/tools/process"
)

// server is one that was started, and what leads to it from other regions.
type server struct {
	*process.Process
	name   string
	client *redis.Client
	proxy  *proxy
}

// start starts a server whose counters are exact.
func (o *options) start(ctx context.Context, name string) (*server, error) {
	p, err := process.FBFKV(ctx, o.fbfkv, "--partitions", strconv.Itoa(o.partitions), "--appendfsync", "everysec")
	if err != nil {
		return nil, err
	}
	s := &server{Process: p, name: name, client: redis.NewClient(&redis.Options{Addr: p.Address, DisableIdentity: true})}
	if s.proxy, err = newProxy(p.Address, o.rtt/2); err == nil {
		err = s.do(ctx, "CTABLE", "ALTER", "default", "MODE", "EXACT")
	}
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *server) close() error {
	err := s.client.Close()
	if s.proxy != nil {
		err = errors.Join(err, s.proxy.close())
	}
	return errors.Join(err, s.Close())
}

func (s *server) do(ctx context.Context, args ...any) error { return s.client.Do(ctx, args...).Err() }

// world is three regions.
type world struct {
	o    *options
	all  []*server
	seed uint32
}

func (o *options) newWorld(ctx context.Context) (w *world, err error) {
	w = &world{o: o, seed: rand.Uint32()}
	for i := range 3 {
		s, err := o.start(ctx, string(rune('a'+i)))
		if err != nil {
			return nil, errors.Join(err, w.close())
		}
		w.all = append(w.all, s)
		if i == 0 {
			err = s.do(ctx, "REGION", "CREATE", s.name, s.proxy.Addr().String())
		} else {
			err = w.join(ctx, s)
		}
		if err != nil {
			return nil, errors.Join(err, w.close())
		}
	}
	return w, nil
}

// join makes a server a region.
func (w *world) join(ctx context.Context, s *server) error {
	var status struct {
		Self map[string]any `json:"self"`
	}
	if err := s.status(ctx, &status); err != nil {
		return err
	}
	status.Self["name"], status.Self["address"] = s.name, s.proxy.Addr().String()
	admission, err := json.Marshal(status.Self)
	if err != nil {
		return err
	}
	set, err := w.all[0].client.Do(ctx, "REGION", "ADMIT", admission).Text()
	if err != nil {
		return err
	}
	return s.do(ctx, "REGION", "JOIN", set)
}

func (s *server) status(ctx context.Context, into any) error {
	b, err := s.client.Do(ctx, "REGION", "STATUS").Text()
	if err != nil {
		return err
	}
	d := json.NewDecoder(strings.NewReader(b))
	d.UseNumber() // an incarnation has 64 bits
	return d.Decode(into)
}

// peer is what a region says of how it reads another one.
type peer struct {
	Name       string `json:"name"`
	Connected  bool   `json:"connected"`
	LagMs      int64  `json:"lag_ms"`
	LagOps     uint64 `json:"lag_ops"`
	LastAnswer int64  `json:"last_answer_ms"`
	Bytes      uint64 `json:"bytes"`
	Pulls      uint64 `json:"pulls"`
}

// state is what a region says of itself.
type state struct {
	Peers      []peer `json:"peers"`
	Operations struct {
		TakenBack uint64 `json:"taken_back"`
	} `json:"operations"`
}

func (s *server) state(ctx context.Context) (st state, err error) { return st, s.status(ctx, &st) }

func (s *server) peer(ctx context.Context, name string) (peer, error) {
	st, err := s.state(ctx)
	for _, p := range st.Peers {
		if p.Name == name {
			return p, err
		}
	}
	return peer{}, errors.Join(err, fmt.Errorf("region %s does not know %s", s.name, name))
}

// caughtUp returns when a region has taken all that another one has done before.
func (s *server) caughtUp(ctx context.Context, name string) (p peer, err error) {
	began := time.Now().UnixMilli()
	for err == nil {
		if p, err = s.peer(ctx, name); p.Connected && p.LagOps == 0 && p.LagMs == 0 && p.LastAnswer > began {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	return p, err
}

func (w *world) close() (err error) {
	for _, s := range w.all {
		err = errors.Join(err, s.close())
	}
	return err
}
