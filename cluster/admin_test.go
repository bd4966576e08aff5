package cluster

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/raft"

	"github.com/fbfkv/fbfkv/internal/testwait"
)

// admin is the Admin of a node that runs, which begins a meta group.
func (m *replica) admin() *Admin {
	m.s.t.Helper()
	n, c := m.running(), m.s.configuration()
	meta, err := StartMeta(MetaOptions{ID: m.id, Stable: n.o.Stable, Net: m.net, Address: n.o.Address,
		Found: &c, Timeout: testTimeout,
		Logger: n.o.Logger, Fatal: n.o.Fatal})
	must(m.s.t, err)
	m.s.t.Cleanup(func() { must(m.s.t, meta.Close()) })
	await(m.s.t, "the cluster begins", func() bool { return meta.Configuration().Version > 0 })
	return &Admin{Node: n, Meta: meta, Store: n.Store(),
		Directory: &Directory{Stable: n.o.Stable, fs: m.fs, path: "d", member: &c}}
}

// ask carries out a verb.
func ask[T any](a *Admin, verb string, request any) (answer T, err error) {
	b, err := json.Marshal(request)
	if err != nil {
		return answer, err
	}
	if b, err = a.Do(verb, b); err == nil {
		err = json.Unmarshal(b, &answer)
	}
	return answer, err
}

// TestVoteComesLast admits a node that cannot be reached: it gets no vote, however often it is
// asked for, until it has caught up (R9). Every verb can be sent again.
func TestVoteComesLast(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := newShard(t, 1)
		a := s.leader().admin()
		m := &replica{s: s, id: fmt.Sprintf("%040x", 2), fs: vfs.NewCrashableMem()}
		s.members = append(s.members, m)
		m.start()
		m.isolate()
		c := a.Meta.Configuration()
		as := Member{ID: m.id, Shard: c.Shards[0].ID, Host: "127.0.0.1", Port: 7002, ClusterPort: m.port,
			Level: FormatLevel}
		for range 2 {
			if _, err := ask[struct{}](a, VerbAdmit, as); err != nil {
				t.Fatal(err)
			}
		}
		if now := a.Meta.Configuration(); now.Version != c.Version+1 || now.Voters(c.Shards[0].ID) != 1 {
			t.Errorf("admitted twice: %+v", now)
		}
		for range 20 {
			p, err := ask[Progress](a, VerbPromote, PromoteRequest{ID: m.id, Vote: true})
			if server, _ := a.Node.server(m.id); err != nil || p.Voter || p.Near ||
				server.Suffrage == raft.Voter {
				t.Fatalf("%v %+v %v: a node votes that has nothing", err, p, server)
			}
		}
		m.heal()
		for end := time.Now().Add(testwait.Limit); ; time.Sleep(10 * time.Millisecond) {
			p, err := ask[Progress](a, VerbPromote, PromoteRequest{ID: m.id, Vote: true})
			if err != nil || time.Now().After(end) {
				t.Fatalf("%v %+v", err, p)
			}
			if p.Voter {
				break
			}
		}
		version := a.Meta.Configuration().Version
		if p, err := ask[Progress](a, VerbPromote, PromoteRequest{ID: m.id, Vote: true}); err != nil ||
			!p.Voter || a.Meta.Configuration().Version != version {
			t.Errorf("again: %v %+v", err, p)
		}
		c = a.Meta.Configuration()
		if server, _ := a.Node.server(m.id); server.Suffrage != raft.Voter || c.Voters(c.Shards[0].ID) != 2 {
			t.Errorf("%v %+v", server, c)
		}
		for range 2 {
			if _, err := ask[struct{}](a, VerbRemove, NodeRequest{ID: m.id}); err != nil {
				t.Fatal(err)
			}
		}
		if _, known := a.Node.server(m.id); known || len(a.Meta.Configuration().Members) != 1 {
			t.Errorf("removed: %v %+v", known, a.Meta.Configuration())
		}
	})
}

// TestRemovedByItsShard: the leader of another shard removes no node, since its own shard would
// keep the voter.
func TestRemovedByItsShard(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := newShard(t, 1)
		a := s.leader().admin()
		other := NewID()
		must(t, a.Meta.Configure(t.Context(), func(c *Configuration) error {
			c.Shards = append(c.Shards, Shard{ID: other, Founder: id(3)})
			m := member(3)
			m.Shard = other
			c.Members = append(c.Members, m)
			return nil
		}))
		if _, err := ask[struct{}](a, VerbRemove, NodeRequest{ID: id(3)}); err == nil ||
			!strings.Contains(err.Error(), "in another shard") {
			t.Errorf("%v", err)
		}
		if c := a.Meta.Configuration(); c.Member(id(3)) == nil {
			t.Error("the node is gone from the configuration")
		}
	})
}

// TestAdminRefuses: malformed requests, and requests that a node cannot serve.
func TestAdminRefuses(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := newShard(t, 1)
		a := s.leader().admin()
		other := member(3)
		other.Host = "0.0.0.0"
		moved := s.configuration().Members[0]
		moved.ClusterPort++
		for _, tt := range []struct{ verb, request, want string }{
			{"nonsense", `{}`, "no verb"},
			{VerbAdmit, ``, "cannot be read"},
			{VerbAdmit, `{"id":"x"} {}`, "cannot be read"},
			{VerbAdmit, `{"seed":"1"}`, "cannot be read"},
			{VerbAdmit, strings.Repeat(" ", maxConfiguration+1), "too long"},
			{VerbAdmit, encoded(other), "neither an address"},
			{VerbAdmit, encoded(moved), "before it comes back at another address"},
			{VerbPromote, encoded(PromoteRequest{ID: id(3)}), "admit it first"},
			{VerbRemove, encoded(NodeRequest{ID: a.Directory.ID()}), "hand over"},
		} {
			if answer, err := a.Do(tt.verb, []byte(tt.request)); err == nil ||
				!strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s %.80s: %s %v, want %q", tt.verb, tt.request, answer, err, tt.want)
			}
		}
		a.Node, a.Meta = nil, nil
		for _, verb := range []string{VerbAdmit, VerbPromote, VerbHandOver, VerbRemove} {
			if answer, err := a.Do(verb, []byte(`{}`)); err == nil {
				t.Errorf("%s by a node that is no member: %s", verb, answer)
			}
		}
	})
}

func encoded(v any) string {
	b, _ := json.Marshal(v)
	return string(b)
}

// FuzzAdmin sends any request to a node without a cluster.
func FuzzAdmin(f *testing.F) {
	d, err := OpenDirectory(vfs.NewMem(), "d")
	if err != nil {
		f.Fatal(err)
	}
	a := &Admin{Directory: d}
	f.Add(VerbAdmit, encoded(member(1)))
	f.Add(VerbPromote, `{"id":""}`)
	f.Fuzz(func(t *testing.T, verb, request string) {
		switch verb {
		case VerbAdmit, VerbPromote, VerbHandOver, VerbRemove, VerbForget:
			if answer, err := a.Do(verb, []byte(request)); err == nil && verb != VerbForget {
				t.Errorf("%s %q: %s", verb, request, answer)
			}
		}
	})
}
