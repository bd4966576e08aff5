package oplog

import (
	"errors"
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// followShard reads on from a bookmark, at most so many records, and returns the sequences of partition 0.
func followShard(t testing.TB, l *Log, at *Bookmark, most int) (seqs []uint64) {
	t.Helper()
	next, err := l.Follow(*at, func(record []byte) error {
		if most == 0 {
			return errHalt
		}
		most--
		return Sections(record, func(_ uint16, seq uint64, _ []byte) error {
			seqs = append(seqs, seq)
			return nil
		})
	})
	if *at = next; err != nil && !errors.Is(err, errHalt) {
		t.Fatal(err)
	}
	return seqs
}

// TestFollowEntries: of a replicated log what is committed is followed, and nothing else: by
// entries, and by files where entries were given up, or never were.
func TestFollowEntries(t *testing.T) {
	o := shardOptions(vfs.NewMem())
	o.FileSize = 8 << 10
	l := mustOpen(t, o)
	defer func() { mustClose(t, l) }()
	hold := l.Hold("test", 1<<30)
	defer hold.Release()
	at := l.BookmarkAt(map[uint16]uint64{0: 1})
	mustAppend(t, l, span(1, 9, 1))
	if got := followShard(t, l, &at, -1); len(got) > 0 {
		t.Fatalf("%d of what is not committed", got)
	}
	l.SetApplied(6)
	expect(t, "the first ones", fmt.Sprint(followShard(t, l, &at, 2)), "[1 2]")
	expect(t, "what is committed", fmt.Sprint(followShard(t, l, &at, -1)), "[3 4 5 6]")
	mustDelete(t, l, 7, 9)
	mustAppend(t, l, span(7, 300, 2))
	l.SetApplied(300)
	expect(t, "what took the place of others", fmt.Sprint(followShard(t, l, &at, 3)), "[7 8 9]")
	if got := followShard(t, l, &at, -1); len(got) != 291 || got[290] != 300 {
		t.Fatalf("%d sections", len(got))
	}
	expect(t, "the rest", fmt.Sprint(followShard(t, l, &at, -1)), "[]")

	mustDelete(t, l, 1, 290)
	old := Bookmark{entry: 5}
	if _, err := l.Follow(old, func([]byte) error { return nil }); !errors.Is(err, ErrBookmark) {
		t.Fatalf("entries that were given up: %v", err)
	}
	old = l.BookmarkAt(map[uint16]uint64{0: 6})
	if got := followShard(t, l, &old, 7); len(got) != 7 || got[0] != 1 {
		t.Fatalf("from the files: %d", got)
	}
	if got := followShard(t, l, &old, -1); got[0] != 1 || got[len(got)-1] != 300 {
		t.Fatalf("from the files, once more: %d to %d", got[0], got[len(got)-1])
	}
	mustAppend(t, l, span(301, 302, 2))
	l.SetApplied(302)
	expect(t, "entries behind the files", fmt.Sprint(followShard(t, l, &old, -1)), "[301 302]")
	if _, err := l.Follow(Bookmark{}, func([]byte) error { return nil }); !errors.Is(err, ErrBookmark) {
		t.Fatalf("no bookmark: %v", err)
	}
}
