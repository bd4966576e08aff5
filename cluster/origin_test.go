package cluster

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

var shardA, shardB = strings.Repeat("a", 40), strings.Repeat("b", 40)

// backupsOf returns backups of two shards with eight partitions each.
func backupsOf() (all []Backup) {
	shards := []Shard{{ID: shardA, Epoch: 1, Partitions: []Range{{0, 7}}}, {ID: shardB, Epoch: 1,
		Partitions: []Range{{8, 15}}}}
	for i, name := range []string{"a", "b"} {
		all = append(all, Backup{Dir: name, Copy: name, Partitions: 16, Seed: "s",
			Origin: &Origin{Cluster: id(1000), Version: 7, Format: 1,
				Partitions: 16, Shards: slices.Clone(shards), Shard: shards[i].ID, Node: id(10 + i)}})
	}
	return all
}

// TestBackupsAreGathered: backups of shards are taken if they have each partition of one cluster
// once, and all reasons against them are told at once.
func TestBackupsAreGathered(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(all []Backup) []Backup
		want   []string
	}{
		{"all", func(all []Backup) []Backup { return all }, nil},
		{"in another order, seen by two nodes",
			func(all []Backup) []Backup { return []Backup{all[1], all[0], all[1]} }, nil},
		{"a newer one", func(all []Backup) []Backup { all[1].Origin.Version = 9; return all }, nil},
		{"one is missing", func(all []Backup) []Backup { return all[:1] },
			[]string{"no backup has partitions 8 to 15: that of the shard bbbbbbbb is missing"}},
		{"one twice", func(all []Backup) []Backup {
			again := all[0]
			again.Dir, again.Copy = "c", "c"
			return append(all, again)
		}, []string{"a and c are both of the shard aaaaaaaa: leave one of them there"}},
		{"not the same everywhere", func(all []Backup) []Backup {
			again := all[0]
			again.Copy = "c"
			return append(all, again)
		}, []string{"a is not the same backup on all machines"}},
		{"another cluster", func(all []Backup) []Backup {
			all[1].Origin.Cluster = strings.Repeat("c", 40)
			return all
		},
			[]string{"b is of the cluster cccccccc, and a of the cluster 00000000",
				"no backup has partitions 8 to 15: that of the shard bbbbbbbb is missing"}},
		{"another seed", func(all []Backup) []Backup { all[1].Seed = "other"; return all },
			[]string{"b and a are not of the same data: the number of partitions or the hash seed is another",
				"no backup has partitions 8 to 15: that of the shard bbbbbbbb is missing"}},
		{"another number of partitions", func(all []Backup) []Backup { all[1].Partitions = 32; return all },
			[]string{"b and a are not of the same data: the number of partitions or the hash seed is another",
				"no backup has partitions 8 to 15: that of the shard bbbbbbbb is missing"}},
		{"a single server's", func(all []Backup) []Backup { all[0].Origin = nil; return all },
			[]string{"a does not say of which shard it is: it is a backup of a single server, or of an " +
				"older program", "no backup has partitions 0 to 7: that of the shard aaaaaaaa is missing"}},
		{"a damaged one", func(all []Backup) []Backup {
			all[0].Origin, all[0].Fault = nil, "damaged"
			return all
		},
			[]string{"a: damaged", "no backup has partitions 0 to 7: that of the shard aaaaaaaa is missing"}},
		{"moved there before", func(all []Backup) []Backup {
			all[1].Origin.Version = 8
			all[1].Origin.Shards = []Shard{{ID: shardA, Epoch: 2, Partitions: []Range{{0, 4}, {6, 6}}},
				{ID: shardB, Epoch: 2, Partitions: []Range{{5, 5}, {7, 15}}}}
			return all
		}, []string{"partitions 5, 7 moved between the backups: a and b both have them"}},
		{"moved away before", func(all []Backup) []Backup {
			all[0].Origin.Version = 8
			all[0].Origin.Shards = []Shard{{ID: shardA, Epoch: 2, Partitions: []Range{{0, 4}}}, {ID: shardB,
				Epoch: 2, Partitions: []Range{{5, 15}}}}
			return all
		}, []string{"partitions 5 to 7 moved between the backups: none has them"}},
		{"none", func([]Backup) []Backup { return nil }, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			parts, faults := Gather(tt.change(backupsOf()))
			var got []string
			for _, err := range faults {
				got = append(got, err.Error())
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("%q, want %q", got, tt.want)
			}
			if len(faults) == 0 && tt.name != "none" &&
				(len(parts) != 2 || parts[0].Dir != "a" || parts[1].Dir != "b") {
				t.Errorf("the parts are %+v", parts)
			}
		})
	}
}

// TestOriginRules breaks every rule of what a backup says of itself.
func TestOriginRules(t *testing.T) {
	for name, change := range map[string]func(*Origin){
		"sound":             func(*Origin) {},
		"cluster":           func(o *Origin) { o.Cluster = "x" },
		"node":              func(o *Origin) { o.Node = "" },
		"version":           func(o *Origin) { o.Version = 0 },
		"format":            func(o *Origin) { o.Format = 0 },
		"newer":             func(o *Origin) { o.Format = FormatLevel + 1 },
		"partitions":        func(o *Origin) { o.Partitions = 15 },
		"too many":          func(o *Origin) { o.Partitions = 1 << 40 },
		"shard":             func(o *Origin) { o.Shard = id(3) },
		"partition missing": func(o *Origin) { o.Shards[0].Partitions[0].Last = 6 },
		"partition twice":   func(o *Origin) { o.Shards[0].Partitions = []Range{{0, 8}} },
		"shard twice":       func(o *Origin) { o.Shards[1].ID = o.Shards[0].ID },
		"founder":           func(o *Origin) { o.Shards[0].Founder = id(1) },
	} {
		o := backupsOf()[0].Origin
		o.Shards[0].Partitions = slices.Clone(o.Shards[0].Partitions)
		change(o)
		b, err := o.encode()
		must(t, err)
		got, err := decodeOrigin(b)
		switch {
		case name == "sound" && (err != nil || got.Of().ID != shardA):
			t.Errorf("%s: %v", name, err)
		case name == "newer" && !errors.Is(err, ErrNewerLevel):
			t.Errorf("%s: %v", name, err)
		case name != "sound" && err == nil:
			t.Errorf("%s: it is taken", name)
		}
	}
}

func FuzzOrigin(f *testing.F) {
	b, err := backupsOf()[0].Origin.encode()
	must(f, err)
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		if o, err := decodeOrigin(b); err == nil && (o.Of() == nil || len(uncovered(o, nil)) == 0) {
			t.Errorf("%+v", o)
		}
	})
}

// TestRestoredShardBeginsItself: a node that has the backup of one shard of several begins that one
// and no other, of the same data, and no cluster of its own.
func TestRestoredShardBeginsItself(t *testing.T) {
	root := t.TempDir()
	backup, dir := filepath.Join(root, "backup"), filepath.Join(root, "d")
	s := openIn(t, nil, filepath.Join(root, "other"), [16]byte{})
	put(t, s, "k")
	of := backupsOf()[1].Origin
	of.Partitions, of.Shards[0].Partitions, of.Shards[1].Partitions = 4, []Range{{0, 1}}, []Range{{2, 3}}
	s.DescribeBackups(func() func() ([]byte, error) { return of.encode })
	must(t, errors.Join(s.Backup(backup), s.Close()))
	found, err := FindBackups(vfs.Default, root)
	if err != nil || len(found) != 2 || found[0].Origin == nil || found[0].Origin.Shard != of.Shard ||
		found[1].Origin != nil {
		t.Fatalf("%v %+v", err, found)
	}

	restarts := 0
	open := func() *Admin {
		d, err := OpenDirectory(nil, dir)
		must(t, err)
		return &Admin{Directory: d, Store: openIn(t, nil, dir, [16]byte{}),
			Self:    Member{Host: "127.0.0.1", Port: 7001, ClusterPort: 17001, Level: 1},
			Digests: func() (string, string) { return "", "" }, Restart: func() { restarts++ }}
	}
	a := open()
	if _, err := ask[struct{}](a, VerbRestore, RestoreRequest{Dir: backup}); err != nil || restarts != 1 {
		t.Fatal(err, restarts)
	}
	if _, err := ask[struct{}](a, VerbRestore, RestoreRequest{Dir: backup}); err == nil ||
		!strings.HasPrefix(err.Error(), TryAgain) {
		t.Errorf("while it is about to be opened: %v", err)
	}
	must(t, errors.Join(a.Store.Close(), a.Directory.Close()))
	a = open()
	info, err := ask[Info](a, VerbInfo, struct{}{})
	if err != nil || info.Restored != backup || info.Tables == nil || info.Pristine {
		t.Fatalf("%v %+v", err, info)
	}
	if !has(a.Store, "k") {
		t.Error("what was in the backup is not there")
	}
	if _, err := ask[struct{}](a, VerbInit, InitRequest{Cluster: id(2000), Partitions: 16}); err == nil ||
		!strings.Contains(err.Error(), "one shard of several") {
		t.Errorf("it begins a cluster that lacks shards: %v", err)
	}
	self := a.Directory.ID()
	for name, change := range map[string]func(*Configuration){
		"sound": func(*Configuration) {},
		"another shard": func(c *Configuration) {
			c.Members[0].Shard, c.Shards[0].Founder, c.Shards[1].Founder = shardA, self, ""
		},
		"in another": func(c *Configuration) { c.Members[0].Shard = shardA },
		"no founder": func(c *Configuration) { c.Shards[1].Founder = id(50) },
		"seed":       func(c *Configuration) { c.Seed[15]++ },
		"partitions": func(c *Configuration) { c.Partitions = 8 },
		"version":    func(c *Configuration) { c.Version = of.Version },
		"no member":  func(c *Configuration) { c.Members = nil },
	} {
		c := Configuration{Version: of.Version + 1, Partitions: a.Store.Stats().Partitions,
			Seed: Seed(a.Store.Seed()), Shards: slices.Clone(of.Shards),
			Members: []Member{{ID: self, Shard: shardB, Voter: true}}}
		c.Shards[1].Founder = self
		change(&c)
		if err := a.hasShard(&c); (err == nil) != (name == "sound") {
			t.Errorf("%s: %v", name, err)
		}
	}
	must(t, errors.Join(a.Store.Close(), a.Directory.Close()))
}

// TestBackupDuringMove: a backup during which partitions of its shard have moved fails; other changes of the
// configuration do not matter.
func TestBackupDuringMove(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := newShard(t, 1)
		a := s.leader().admin()
		c := a.Meta.Configuration()
		own := a.Node.o.ID
		change := func(fn func(*Configuration)) {
			t.Helper()
			must(t, a.configure(t.Context(), func(c *Configuration) error {
				fn(c)
				return nil
			}))
		}
		end := a.Describe()
		change(func(c *Configuration) { c.Members[0].Hostname = "other" })
		b, err := end()
		must(t, err)
		o, err := decodeOrigin(b)
		if err != nil || o.Shard != c.Shards[0].ID || o.Node != own ||
			o.Version != a.Meta.Configuration().Version || !o.Whole() {
			t.Errorf("%v %+v", err, o)
		}
		end = a.Describe()
		change(func(c *Configuration) {
			last := c.Partitions - 1
			if len(c.Shards) > 1 {
				return // it is asked again
			}
			c.Shards[0].Partitions, c.Shards[0].Epoch = []Range{{0, last - 1}}, c.Shards[0].Epoch+1
			c.Shards = append(c.Shards, Shard{ID: shardB, Epoch: 2, Partitions: []Range{{last, last}}})
		})
		if _, err := end(); !errors.Is(err, errMoved) {
			t.Errorf("%v", err)
		}
		b, err = a.Describe()()
		must(t, err)
		if o, err := decodeOrigin(b); err != nil || o.Whole() {
			t.Errorf("%v %+v", err, o)
		}
		end = a.Describe()
		change(func(c *Configuration) {
			m := member(1)
			m.ID, m.Shard, m.Port, m.ClusterPort = testID("b"), shardB, 7100, 17100
			c.Members = append(c.Members, m)
			c.Shards[1].Founder = m.ID
			c.Moves = []Move{{Partition: 0, From: c.Shards[0].ID, To: shardB, Epoch: c.Version}}
		})
		for _, end := range []func() ([]byte, error){end, a.Describe()} {
			if _, err := end(); !errors.Is(err, errMoved) {
				t.Errorf("while a partition is on its way: %v", err)
			}
		}
	})
}

// TestRecoveryEndsMoves: what recover copies has the partitions of its shard, also those that were
// being handed over.
func TestRecoveryEndsMoves(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := newShard(t, 1)
		c := s.configuration()
		shard, last := c.Shards[0].ID, c.Partitions-1
		c.Shards[0].Partitions = []Range{{0, last - 1}}
		c.Shards = append(c.Shards, Shard{ID: shardB, Epoch: 2, Partitions: []Range{{last, last}}})
		s.onLeader("the end of moves", func(n *Node) error {
			for _, p := range []int{0, last} {
				if _, err := n.st.HandOver(uint16(p), 5); err != nil {
					return err
				}
			}
			return endMoves(n.st, &c, shard)
		})
		st := s.leader().running().st
		for p := range c.Partitions {
			if number, _ := st.Handed(uint16(p)); number > 0 && p < last {
				t.Errorf("partition %d is still handed over", p)
			}
			if st.Vacant(uint16(p)) != (p == last) {
				t.Errorf("partition %d: gone is %v", p, st.Vacant(uint16(p)))
			}
		}
	})
}
