package store

import (
	"testing"

	"github.com/fbfkv/fbfkv/persistence"
)

// TestMergeKeepsRunsFew builds runs for days: their number stays small, none
// spans more than an eighth of the remembering time, and a record is rewritten
// only a few times.
func TestMergeKeepsRunsFew(t *testing.T) {
	const keep, every, size = 125_000, 100, 1000
	var runs []persistence.Run
	var written, records uint64
	for now := int64(0); now < 40*keep; now += every {
		for len(runs) > 0 && runs[0].LastTime+keep < now {
			runs = runs[1:]
		}
		run := persistence.Run{Count: size, FirstTime: now, LastTime: now + every - 1}
		i := mergeFrom(runs, run, keep)
		for _, m := range runs[i:] {
			run.Count += m.Count
			run.FirstTime = min(run.FirstTime, m.FirstTime)
		}
		runs = append(runs[:i:i], run)
		written, records = written+run.Count, records+size
		if span := run.LastTime - run.FirstTime; span > keep/8 {
			t.Fatalf("a run spans %d ms", span)
		}
		if len(runs) > 60 {
			t.Fatalf("%d runs", len(runs))
		}
	}
	if f := float64(written) / float64(records); f > 4 {
		t.Errorf("each record is written %.1f times", f)
	}
}
