package persistence

import (
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// TestDamageAheadOfTheMark: LOGSYNC is not fsynced with each commit, and may lag behind
// after a power loss. What later records say was durable before them may not be damaged
// either.
func TestDamageAheadOfTheMark(t *testing.T) {
	mem := vfs.NewCrashableMem()
	o := testOptions(mem)
	db := mustOpen(t, o)
	defer mustClose(t, db)
	var mark []byte
	for seq := uint64(1); seq <= 20; seq++ {
		mustCommit(t, db, func(b *Batch) { b.AppendLog(0, seq, recordOf(seq)) })
		if seq == 1 {
			var err error
			if mark, err = readFile(mem, "data/"+logMarkName, 1<<20); err != nil {
				t.Fatal(err)
			}
		}
	}
	current := db.log.sync.current()
	for _, part := range []int64{3, 2} {
		lost := crash(mem, 100, nil)
		if err := writeFile(lost, "data", logMarkName, mark); err != nil {
			t.Fatal(err)
		}
		o.FS = lost
		again, err := Open(o)
		if err != nil {
			t.Fatal("a mark that lags behind is refused:", err)
		}
		mustClose(t, again)
		lost = crash(mem, 100, nil)
		if err := writeFile(lost, "data", logMarkName, mark); err != nil {
			t.Fatal(err)
		}
		flip(t, lost, "data/log/"+logFileName(current.num), current.written.Load()/part)
		o.FS = lost
		if _, err := Open(o); !errors.Is(err, ErrCorrupt) {
			t.Errorf("damage at a %d. of the log: %v", part, err)
		}
	}
}
