package cluster

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/hashicorp/raft"

	"github.com/fbfkv/fbfkv/cluster/raftgroup"
	"github.com/fbfkv/fbfkv/internal/raced"
	"github.com/fbfkv/fbfkv/persistence"
	"github.com/fbfkv/fbfkv/persistence/crashtest"
	"github.com/fbfkv/fbfkv/persistence/disk"
)

func dirOptions(fsys vfs.FS, dir string) persistence.Options {
	return persistence.Options{FS: fsys, Dir: dir, Partitions: 1, MemTableSize: 1 << 20,
		LogFileSize: 64 << 10, CacheSize: 1 << 20, Fatal: func(error) {}}
}

// makeDir makes a data directory whose log has so many records.
func makeDir(t *testing.T, fsys vfs.FS, dir string, records uint64) *persistence.DB {
	t.Helper()
	db, err := persistence.Open(dirOptions(fsys, dir))
	if err != nil {
		t.Fatal(err)
	}
	for seq := uint64(1); seq <= records; seq++ {
		b := db.Log().NewBatch()
		b.AppendLog(0, seq, crashtest.Record(seq))
		must(t, b.Apply())
		must(t, b.Wait())
	}
	return db
}

// recordsOf returns how many records the log of a data directory has.
func recordsOf(fsys vfs.FS, dir string) (last uint64, err error) {
	db, err := persistence.OpenReadOnly(dirOptions(fsys, dir))
	if err != nil {
		return 0, err
	}
	_, last, _ = db.Log().Bounds(0)
	return last, db.Close()
}

// TestSwapCrash: whenever a power loss ends a node that puts the files that it has fetched in
// the place of its own, the next start ends that: it has the one or the other, whole, and
// its own id and vote in any case.
func TestSwapCrash(t *testing.T) {
	const own, others = 3, 7
	values := map[string]string{raftgroup.TermValue: string(make([]byte, 7)) + "\x05",
		"LastVoteTerm": string(make([]byte, 7)) + "\x05", "LastVoteCand": "somebody"}
	taken := 0
	for at, done := 1, false; !done; at += raced.Step {
		for _, percent := range []int{0, 50, 100} {
			mem := vfs.NewCrashableMem()
			if err := makeDir(t, mem, "d", own).Close(); err != nil {
				t.Fatal(err)
			}
			stable, err := raftgroup.OpenStable(mem, "d")
			if err != nil {
				t.Fatal(err)
			}
			id := stable.Node()
			for name, value := range values {
				if err := stable.Set([]byte(name), []byte(value)); err != nil {
					t.Fatal(err)
				}
			}
			must(t, stable.Set([]byte("fbfkv.snapshot"), []byte(`{"Meta":{"ID":"old","Index":1}}`)))
			must(t, stable.Close())
			other := makeDir(t, mem, "other", others)
			must(t, other.Cut(func() {}))
			must(t, mem.Rename(other.CutDir(), "d/incoming"))
			must(t, disk.SyncDir(mem, "d"))
			must(t, other.Close())

			var left *vfs.MemFS
			rng := rand.New(rand.NewPCG(uint64(at), uint64(percent)))
			fsys := errorfs.Wrap(mem, crashtest.AtOperation(at, func() {
				left = crashtest.Left(mem, percent, rng)
			}))
			stable, err = raftgroup.OpenStable(fsys, "d")
			must(t, err)
			w := swap{Term: 4, Snapshot: &raft.SnapshotMeta{Version: 1, ID: "new", Index: 6, Term: 4}}
			if at%2 == 0 {
				w.Term, w.Snapshot = 9, nil
			}
			must(t, w.begin(stable))
			_, err = finishSwap(fsys, "d", stable, slog.New(slog.DiscardHandler))
			must(t, err)
			must(t, stable.Close())
			if done = left == nil; done {
				left = crashtest.Left(mem, percent, rng)
			}

			stable, err = raftgroup.OpenStable(left, "d")
			must(t, err)
			if _, err := finishSwap(left, "d", stable, slog.New(slog.DiscardHandler)); err != nil {
				t.Fatalf("operation %d: %v", at, err)
			}
			records, err := recordsOf(left, "d")
			must(t, err)
			meta, err := stable.Last()
			must(t, err)
			term, err := stable.GetUint64([]byte(raftgroup.TermValue))
			must(t, err)
			got := fmt.Sprint(records, meta, term)
			before, after := fmt.Sprint(own, &raft.SnapshotMeta{ID: "old", Index: 1}, 5),
				fmt.Sprint(others, w.Snapshot, max(5, w.Term))
			switch {
			case got == after:
				taken++
			case got != before || done:
				t.Errorf("operation %d leaves %s, neither %s nor %s", at, got, before, after)
			}
			for name, value := range values {
				if b, _ := stable.Get([]byte(name)); name != raftgroup.TermValue && string(b) != value {
					t.Errorf("operation %d: %s is %q", at, name, b)
				}
			}
			if stable.Node() != id {
				t.Errorf("operation %d: the node is another one", at)
			}
			if b, err := stable.Get([]byte(swapValue)); len(b) > 0 || err != nil {
				t.Errorf("operation %d: it is not over: %s", at, b)
			}
			must(t, stable.Close())
		}
	}
	if taken == 0 {
		t.Error("nothing was taken")
	}
}

// TestSwapWithoutFiles: a node that has erased its files, and of which the others were
// deleted, does not start with nothing.
func TestSwapWithoutFiles(t *testing.T) {
	mem := vfs.NewMem()
	must(t, makeDir(t, mem, "d", 1).Close())
	stable, err := raftgroup.OpenStable(mem, "d")
	must(t, err)
	defer stable.Close()
	must(t, swap{Term: 1}.begin(stable))
	for range 2 {
		if _, err := finishSwap(mem, "d", stable, slog.New(slog.DiscardHandler)); err == nil {
			t.Fatal("it starts")
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
