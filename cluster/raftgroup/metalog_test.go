package raftgroup

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/raft"

	"github.com/fbfkv/fbfkv/persistence"
)

// TestMetaLogFails: when entries cannot be stored in the place of those that were deleted, the process ends.
func TestMetaLogFails(t *testing.T) {
	var failed error
	stable := mustStable(t, vfs.NewMem())
	tooLong := &raft.Log{Index: 1, Term: 1, Data: make([]byte, 2<<20)}
	log, err := OpenMetaLog(stable.Meta(), func(err error) { failed = err })
	must(t, err)
	if log.StoreLog(tooLong) == nil || failed != nil {
		t.Fatal(failed)
	}
	must(t, log.StoreLog(&raft.Log{Index: 1, Term: 1}))
	must(t, log.DeleteRange(1, 1))
	if log.StoreLog(tooLong) == nil || failed == nil {
		t.Error("Raft goes on with a log that lacks what it has")
	}
	must(t, stable.Close())
}

// TestMetaLog stores and deletes entries, and opens the log again after each.
func TestMetaLog(t *testing.T) {
	mem := vfs.NewCrashableMem()
	stable := mustStable(t, mem)
	want := ""
	fails := func(err error) { t.Error(err) }
	check := func() {
		t.Helper()
		must(t, stable.Close())
		mem = mem.CrashClone(vfs.CrashCloneCfg{}) // nothing that was not fsynced
		stable = mustStable(t, mem)
		l, err := OpenMetaLog(stable.Meta(), fails)
		must(t, err)
		first, _ := l.FirstIndex()
		last, _ := l.LastIndex()
		got := ""
		for i := first; i <= last && first > 0; i++ {
			var e raft.Log
			must(t, l.GetLog(i, &e))
			got += fmt.Sprint(e.Index, ":", e.Term, ":", string(e.Data), " ")
		}
		if got != want {
			t.Errorf("the log is %q, want %q", got, want)
		}
		for _, i := range []uint64{0, first - 1, last + 1} {
			if err := l.GetLog(i, new(raft.Log)); !errors.Is(err, raft.ErrLogNotFound) {
				t.Errorf("entry %d of %d to %d: %v", i, first, last, err)
			}
		}
	}
	log := func() *MetaLog {
		l, err := OpenMetaLog(stable.Meta(), fails)
		must(t, err)
		return l
	}
	entry := func(i uint64) *raft.Log { return &raft.Log{Index: i, Term: 2, Data: []byte{'a' + byte(i)}} }
	check()
	must(t, log().StoreLogs([]*raft.Log{entry(5), entry(6), entry(7)}))
	want = "5:2:f 6:2:g 7:2:h "
	check()
	if log().StoreLog(entry(7)) == nil {
		t.Error("an entry takes the place of another one")
	}
	check()
	must(t, log().StoreLog(entry(9)))
	want = "9:2:j "
	check()
	must(t, log().StoreLogs([]*raft.Log{entry(10), entry(20)}))
	want = "20:2:u "
	check()
	must(t, log().DeleteRange(20, 20))
	must(t, log().StoreLogs([]*raft.Log{entry(5), entry(6), entry(7)}))
	must(t, log().DeleteRange(7, 7))
	must(t, log().StoreLog(entry(7)))
	must(t, log().DeleteRange(5, 6)) // they stay, since the log is short
	must(t, log().DeleteRange(20, 30))
	want = "5:2:f 6:2:g 7:2:h "
	check()
	long := entry(8)
	long.Data = bytes.Repeat(long.Data, metaLogKeeps)
	must(t, log().StoreLog(long))
	must(t, log().DeleteRange(5, 6))
	must(t, log().DeleteRange(8, 8))
	want = "6:2:g 7:2:h "
	check()
	must(t, log().DeleteRange(6, 7))
	want = ""
	check()
	must(t, stable.Meta().Set([]byte(metaLogValue), []byte("rotten")))
	if _, err := OpenMetaLog(stable.Meta(), fails); !errors.Is(err, persistence.ErrCorrupt) {
		t.Errorf("a damaged log: %v", err)
	}
	must(t, stable.Close())
}
