package main

import (
	"context"
	"encoding/json"
	"fmt"
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
func (o *options) start(ctx context.Context, name string) *server {
	p := process.Must(process.FBFKV(ctx, o.fbfkv, "--partitions", strconv.Itoa(o.partitions), "--appendfsync", "everysec"))
	s := &server{Process: p, name: name, client: redis.NewClient(&redis.Options{Addr: p.Address, DisableIdentity: true})}
	s.proxy = process.Must(newProxy(p.Address, o.rtt/2))
	s.do(ctx, "CTABLE", "ALTER", "default", "MODE", "EXACT")
	return s
}

func (s *server) close() {
	s.client.Close()
	s.proxy.close()
	_ = s.Close() // what is left of its data is nobody's trouble
}

func (s *server) do(ctx context.Context, args ...any) string {
	return fmt.Sprint(process.Must(s.client.Do(ctx, args...).Result()))
}

// world is three regions.
type world struct {
	o    *options
	all  []*server
	seed uint32
}

func (w *world) start(ctx context.Context) {
	for i := range 3 {
		s := w.o.start(ctx, string(rune('a'+i)))
		if w.all = append(w.all, s); i == 0 {
			s.do(ctx, "REGION", "CREATE", s.name, s.proxy.Addr().String())
			continue
		}
		var status struct {
			Self map[string]any `json:"self"`
		}
		s.status(ctx, &status)
		status.Self["name"], status.Self["address"] = s.name, s.proxy.Addr().String()
		admission := process.Must(json.Marshal(status.Self))
		s.do(ctx, "REGION", "JOIN", w.all[0].do(ctx, "REGION", "ADMIT", admission))
	}
}

func (w *world) close() {
	for _, s := range w.all {
		s.close()
	}
}

func (s *server) status(ctx context.Context, into any) {
	d := json.NewDecoder(strings.NewReader(s.do(ctx, "REGION", "STATUS")))
	d.UseNumber() // an incarnation has 64 bits
	process.Check(d.Decode(into))
}

// peer is what a region says of how it reads another one.
type peer struct {
	Name       string `json:"name"`
	Connected  bool   `json:"connected"`
	LagMs      int64  `json:"lag_ms"`
	LagOps     uint64 `json:"lag_ops"`
	LastAnswer int64  `json:"last_answer_ms"`
	Bytes      uint64 `json:"bytes"`
}

// state is what a region says of itself.
type state struct {
	Peers      []peer `json:"peers"`
	Operations struct {
		TakenBack uint64 `json:"taken_back"`
	} `json:"operations"`
}

func (s *server) state(ctx context.Context) (st state) {
	s.status(ctx, &st)
	return st
}

func (s *server) peer(ctx context.Context, name string) peer {
	for _, p := range s.state(ctx).Peers {
		if p.Name == name {
			return p
		}
	}
	process.Check(fmt.Errorf("region %s does not know %s", s.name, name))
	return peer{}
}

// caughtUp returns when a region has taken all that another one has done before.
func (s *server) caughtUp(ctx context.Context, name string) peer {
	for began := time.Now().UnixMilli(); ; time.Sleep(20 * time.Millisecond) {
		p := s.peer(ctx, name)
		if p.Connected && p.LagOps == 0 && p.LagMs == 0 && p.LastAnswer > began {
			return p
		}
	}
}
