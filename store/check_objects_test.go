package store

import (
	"strconv"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/internal/raced"
)

// TestCheckObjectOverCounter: after the last checkpoint objects are made under keys that were
// counters, and go. Their rows are still those of the checkpoint, or are gone, or were written
// since; the directory is sound at each step.
func TestCheckObjectOverCounter(t *testing.T) {
	key := []byte("k")
	del := Op{Kind: Del, Keys: [][]byte{key}}
	steps := []Op{
		{Kind: CIncrBy, Key: key, ID: []byte("1"), Delta: 5},
		del,
		{Kind: FBFAdd, Key: key, Keys: [][]byte{[]byte("x")}},
		del,
		{Kind: IncrBy, Key: key, Delta: 3},
		{Kind: Del, Keys: [][]byte{key, []byte("other")}},
		{Kind: FBFAdd, Key: key, Keys: [][]byte{[]byte("y")}},
		{Kind: Set, Key: key, Delta: 7},
	}
	for name, regions := range map[string]bool{"alone": false, "member of regions": true} {
		for before := 0; before < len(steps); before += raced.Step {
			for _, rows := range []int{0, before + 1, len(steps) - 1} { // rows are written behind this step
				fs := vfs.NewMem()
				with := func(o *Options) { o.FS, o.Partitions, o.LogFileSize = fs, 1, 4<<10 }
				s := testStore(t, with)
				if regions {
					must(t, s.SetRegions(regionSet(false)))
				}
				must(t, do(s, Op{Kind: IncrBy, Key: []byte("other"), Delta: 1}).Err)
				for i, op := range steps {
					must(t, do(s, op).Err)
					if i == before {
						for n := range 40 * rows { // so that the log is trimmed
							must(t, do(s,
								Op{Kind: IncrBy, Key: []byte("more" + strconv.Itoa(n%3)), Delta: 1}).Err)
						}
						must(t, s.Snapshot())
						must(t, s.Snapshot())
					}
					if i == rows && i > before {
						must(t, s.flushRows(s.partitions[0]))
					}
					must(t, s.CloseNow())
					checkSound(t, fs, "data")
					if t.Failed() {
						t.Fatalf("%s, step %d, a checkpoint at %d, rows at %d", name, i, before, rows)
					}
					s = testStore(t, with)
				}
				must(t, s.CloseNow())
			}
		}
	}
}
