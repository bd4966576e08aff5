package cluster

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/fbfkv/fbfkv/store"
)

// id returns the n-th of the tests' ids.
func id(n int) string { return fmt.Sprintf("%040x", n) }

// member returns the n-th of the tests' nodes.
func member(n int) Member {
	return Member{ID: id(n), Shard: id(99), Host: "127.0.0.1", Port: 7000 + n, ClusterPort: 17000 + n,
		Voter: true, Level: 1}
}

// threeNodes is a valid configuration.
func threeNodes() Configuration {
	return Configuration{
		Version: 7, Cluster: id(1000), Format: 1, Seed: Seed{0xfe, 15: 0x10}, Partitions: 16,
		Shards:  []Shard{{ID: id(99), Epoch: 1, Founder: id(1), Partitions: []Range{{0, 15}}}},
		Members: []Member{member(1), member(2), member(3)},
		Tables:  Tables{Version: 3, Set: store.NewTables()},
	}
}

func TestConfigurationRoundTrip(t *testing.T) {
	c := threeNodes()
	b, err := c.Encode()
	if err != nil {
		t.Fatal(err)
	}
	got, err := DecodeConfiguration(b)
	if err != nil || !got.equal(c) {
		t.Errorf("%v %+v, want %+v", err, got, c)
	}
	if public, _ := json.Marshal(c.Public()); bytes.Contains(public, []byte("fedcba98")) ||
		bytes.Contains(public, []byte("seed")) {
		t.Errorf("the public configuration has the seed: %s", public)
	}
}

// longTables are tables whose encoding has about so many bytes.
func longTables(size int) (set store.TableSet) {
	set = store.NewTables()
	for i := 0; ; i++ {
		next, err := set.Create(store.TableOptions{Name: fmt.Sprintf("t%03d", i),
			Prefix: fmt.Sprint(i, strings.Repeat("x", 400))})
		if b, _ := json.Marshal(set); err != nil || len(b) > size {
			return set
		}
		set = next
	}
}

// TestConfigurationRules breaks every rule of validity.
func TestConfigurationRules(t *testing.T) {
	for want, edit := range map[string]func(c *Configuration){
		"version is 0":            func(c *Configuration) { c.Version = 0 },
		"cluster's id":            func(c *Configuration) { c.Cluster = strings.Repeat("G", 40) },
		"format level 0":          func(c *Configuration) { c.Format = 0 },
		"levels up to 1, and the": func(c *Configuration) { c.Format = FormatLevel + 1 },
		"levels up to 0":          func(c *Configuration) { c.Members[0].Level = 0 },
		"levels up to 65536":      func(c *Configuration) { c.Members[0].Level = maxLevel + 1 },
		"hash seed":               func(c *Configuration) { c.Seed = Seed{} },
		"24 partitions":           func(c *Configuration) { c.Partitions = 24 },
		"2048 partitions":         func(c *Configuration) { c.Partitions = 2048 },
		"partition 0 is in no":    func(c *Configuration) { c.Shards = nil },
		"65 shards":               func(c *Configuration) { c.Shards = make([]Shard, MaxMembers+1) },
		"two shards have the id":  func(c *Configuration) { c.Shards = append(c.Shards, c.Shards[0]) },
		"partition 15 is in no":   func(c *Configuration) { c.Shards[0].Partitions[0].Last = 14 },
		"partition 3 is in two": func(c *Configuration) {
			c.Shards = append(c.Shards, Shard{ID: id(98), Partitions: []Range{{3, 3}}})
		},
		"partitions 5 to 4 of": func(c *Configuration) {
			c.Shards[0].Partitions = []Range{{0, 3}, {5, 4}}
		},
		"partitions 8 to 16 of": func(c *Configuration) {
			c.Shards[0].Partitions = []Range{{0, 6}, {8, 16}}
		},
		"partitions 8 to 15 of": func(c *Configuration) {
			c.Shards[0].Partitions = []Range{{0, 7}, {8, 15}}
		},
		"a shard's id":      func(c *Configuration) { c.Shards[0].ID = "1" },
		"its founder":       func(c *Configuration) { c.Shards[0].Founder = "1" },
		"none has begun it": func(c *Configuration) { c.Shards[0].Founder = "" },
		"65 nodes":          func(c *Configuration) { c.Members = make([]Member, MaxMembers+1) },
		"it has no nodes":   func(c *Configuration) { c.Members = nil },
		"no node votes": func(c *Configuration) {
			for i := range c.Members {
				c.Members[i].Voter = false
			}
		},
		"a node's id": func(c *Configuration) {
			c.Members[1].ID = strings.ToUpper(strings.Repeat("ab", 20))
		},
		"neither an address":     func(c *Configuration) { c.Members[0].Host = "two words" },
		`"0.0.0.0" is neither`:   func(c *Configuration) { c.Members[0].Host = "0.0.0.0" },
		`"" is neither`:          func(c *Configuration) { c.Members[0].Host = "" },
		"is not a host's name":   func(c *Configuration) { c.Members[0].Hostname = "a,b" },
		"no port for clients":    func(c *Configuration) { c.Members[0].Port = 0 },
		"no cluster port":        func(c *Configuration) { c.Members[0].ClusterPort = 0 },
		"70000 is not a port":    func(c *Configuration) { c.Members[0].TLSPort = 70000 },
		"which does not exist":   func(c *Configuration) { c.Members[2].Shard = id(98) },
		"is an address of node":  func(c *Configuration) { c.Members[2].TLSPort = 7001 },
		"two nodes have the id ": func(c *Configuration) { c.Members[2].ID = c.Members[0].ID },
		"tables have no version": func(c *Configuration) { c.Tables.Version = 0 },
		"no table default":       func(c *Configuration) { c.Tables.Set = nil },
		"WINDOW must be":         func(c *Configuration) { c.Tables.Set[0].Window = 1 },
		"lacks a setting":        func(c *Configuration) { c.Tables.Set[0].Error = 0 },
		"was dropped and is":     func(c *Configuration) { c.Tables.Dropped = store.DefaultTable },
		"name of the table that": func(c *Configuration) {
			c.Tables.Dropped = strings.Repeat("x", store.MaxTableName+1)
		},
		"its tables have 65": func(c *Configuration) { c.Tables.Set = longTables(maxTables) },
	} {
		c := threeNodes()
		edit(&c)
		err := c.Valid()
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		if b, _ := json.Marshal(c); json.Valid(b) {
			if _, err := DecodeConfiguration(b); err == nil {
				t.Errorf("decoded although invalid: %s", b)
			}
		}
	}
}

// TestConfigurationIsReadWithDistrust: other bytes than the canonical ones are refused.
func TestConfigurationIsReadWithDistrust(t *testing.T) {
	b, _ := threeNodes().Encode()
	text := string(b)
	for what, in := range map[string]string{
		"empty":           "",
		"cut":             text[:len(text)-1],
		"a field more":    strings.Replace(text, `{"version"`, `{"more":1,"version"`, 1),
		"a field twice":   strings.Replace(text, `{"version"`, `{"version":3,"version"`, 1),
		"another case":    strings.Replace(text, `"version"`, `"Version"`, 1),
		"space":           text + " ",
		"two values":      text + text,
		"a number as hex": strings.Replace(text, `"fe00`, `"FE00`, 1),
		"too long":        text + strings.Repeat(" ", maxConfiguration),
	} {
		if _, err := DecodeConfiguration([]byte(in)); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
	newer := strings.Replace(text, `"format":1,`, `"format":2,"unheardOf":true,`, 1)
	if _, err := DecodeConfiguration([]byte(newer)); !errors.Is(err, ErrNewerLevel) {
		t.Errorf("a newer level: %v", err)
	}
}

// TestConfigurationChanges: a change makes the next version, no change makes none, and
// what a cluster fixes at its creation stays.
func TestConfigurationChanges(t *testing.T) {
	c := threeNodes()
	next, err := c.Changed(func(c *Configuration) error {
		c.Members[1].Voter = false
		c.Members = append(c.Members, member(4))
		return nil
	})
	if err != nil || next.Version != 8 || len(next.Members) != 4 || next.Members[1].Voter {
		t.Errorf("%v %+v", err, next)
	}
	if !c.equal(threeNodes()) {
		t.Error("the change shows in the version before")
	}
	same, err := c.Changed(func(*Configuration) error { return nil })
	if err != nil || !same.equal(c) {
		t.Errorf("%v %+v", err, same)
	}
	boom := errors.New("boom")
	if _, err := c.Changed(func(*Configuration) error { return boom }); !errors.Is(err, boom) {
		t.Error(err)
	}
	for _, edit := range []func(c *Configuration){
		func(c *Configuration) { c.Cluster = id(5) },
		func(c *Configuration) { c.Seed[15]++ },
		func(c *Configuration) { c.Partitions, c.Shards[0].Partitions[0].Last = 32, 31 },
		func(c *Configuration) { c.Members = nil },
	} {
		if _, err := c.Changed(func(c *Configuration) error { edit(c); return nil }); !errors.Is(err,
			ErrInvalid) {
			t.Errorf("a forbidden change: %v", err)
		}
	}
	for _, version := range []uint64{7, 9} {
		other := threeNodes()
		other.Version = version
		if err := other.Follows(c); !errors.Is(err, ErrInvalid) {
			t.Errorf("version %d follows 7: %v", version, err)
		}
	}
}

// TestTablesAreCounted: the version of the tables counts their changes, and nothing else.
func TestTablesAreCounted(t *testing.T) {
	c := threeNodes()
	more, err := c.Tables.Set.Create(store.TableOptions{Name: "t", Prefix: "t:"})
	if err != nil {
		t.Fatal(err)
	}
	next, err := c.Changed(func(c *Configuration) error {
		c.Tables = Tables{Version: 4, Set: more}
		return nil
	})
	if err != nil || next.Tables.Version != 4 || len(next.Tables.Set) != 2 || len(c.Tables.Set) != 1 {
		t.Fatalf("%v %+v", err, next)
	}
	last, err := next.Changed(func(n *Configuration) error {
		n.Tables = Tables{Version: 5, Dropped: "t", Set: c.Tables.Set}
		return nil
	})
	if err != nil || last.Tables.Dropped != "t" {
		t.Fatalf("%v %+v", err, last)
	}
	for what, tables := range map[string]Tables{
		"not counted":       {Version: 4, Set: c.Tables.Set},
		"counted twice":     {Version: 6, Set: c.Tables.Set},
		"an older version":  {Version: 3, Set: c.Tables.Set},
		"nothing counted":   {Version: 5, Set: more},
		"nothing dropped":   {Version: 4, Dropped: "u", Set: more},
		"no valid set":      {Version: 5},
		"what is not there": {Version: 5, Dropped: "default", Set: c.Tables.Set},
	} {
		setTables := func(c *Configuration) error { c.Tables = tables; return nil }
		if _, err := next.Changed(setTables); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
	double := func(c *Configuration) error { c.Tables.Set[0].Window *= 2; return nil }
	if _, err := c.Changed(double); !errors.Is(err, ErrInvalid) {
		t.Errorf("in place: %v", err)
	}
	if !c.equal(threeNodes()) {
		t.Error("the change shows in the version before")
	}
}

func TestConfigurationFindsMembers(t *testing.T) {
	c := threeNodes()
	c.Members[1].TLSPort, c.Members[1].Hostname = 7102, "b.example"
	c.Members[2].Host = "::1"
	for address, want := range map[string]string{
		"127.0.0.1:7001": id(1), "127.0.0.1:7002": id(2), "127.0.0.1:7102": id(2), "b.example:7002": id(2),
		"[::1]:7003": id(3), "127.0.0.1:7003": "", "127.0.0.1:17001": "", "127.0.0.1:0": "",
	} {
		m := c.At(address)
		if (m == nil) != (want == "") || m != nil && m.ID != want {
			t.Errorf("%s: %+v, want %q", address, m, want)
		}
	}
	if c.Member(id(3)).ClusterAddress() != "[::1]:17003" || c.Member(id(8)) != nil {
		t.Error("by id")
	}
}

func FuzzConfiguration(f *testing.F) {
	b, _ := threeNodes().Encode()
	f.Add(b)
	f.Add([]byte(`{"format":2}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := DecodeConfiguration(b)
		if err != nil {
			return
		}
		again, err := c.Encode()
		if err != nil || !bytes.Equal(again, b) || len(c.Members) > MaxMembers {
			t.Errorf("%q is read as %+v, which is written as %q (%v)", b, c, again, err)
		}
	})
}

// TestMoveEndsOnce: the end of a move that comes late does not end a later one of the same partition.
func TestMoveEndsOnce(t *testing.T) {
	c := threeNodes()
	a, b := c.Shards[0].ID, id(100)
	c.Shards = append(c.Shards, Shard{ID: b, Epoch: 1, Founder: c.Members[1].ID})
	c.Members[1].Shard = b
	c.Shards[0].Founder = c.Members[0].ID
	var moves []Move
	for i := range 3 {
		from, to := a, b
		if i%2 == 1 {
			from, to = b, a
		}
		next, err := c.Changed(func(c *Configuration) error {
			return c.moves(MoveRequest{Partitions: []int{0}, To: to})
		})
		must(t, err)
		c = next
		if move := c.Move(0); move == nil || move.From != from || move.To != to {
			t.Fatalf("it moves so: %v", move)
		}
		moves = append(moves, *c.Move(0))
		if i == 2 {
			break
		}
		next, err = c.Changed(func(c *Configuration) error { c.arrived(moves[i]); return nil })
		must(t, err)
		if c = next; c.Owner(0).ID != to || len(c.Moves) > 0 {
			t.Fatalf("it is in the shard %s, and moves: %v", c.Owner(0).ID, c.Moves)
		}
	}
	next, err := c.Changed(func(c *Configuration) error { c.arrived(moves[0]); return nil })
	if err != nil || next.Version != c.Version {
		t.Errorf("the first move ends once more: %v, %v", next.Moves, err)
	}
}
