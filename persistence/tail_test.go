package persistence

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/persistence/disk"
)

// TestTail: appended frames are there at the next start, but for a frame that was left half
// written. Bytes of clients inside that one are not taken for a frame, wherever the next one ends.
func TestTail(t *testing.T) {
	fs := vfs.NewMem()
	db := mustOpen(t, testOptions(fs))
	defer mustClose(t, db)
	open := func(want ...string) *Tail {
		t.Helper()
		var got []string
		tail, err := db.OpenTail(3, 5, func(content []byte) error {
			got = append(got, string(content))
			return nil
		})
		if err != nil || !slices.Equal(got, want) {
			t.Fatalf("%q, %v; it should be %q", got, err, want)
		}
		return tail
	}
	put := func(tail *Tail, content string) {
		t.Helper()
		if err := tail.Append([]byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	tail := open()
	if err := tail.Append(nil); !errors.Is(err, ErrBadOptions) {
		t.Errorf("nothing is appended: %v", err)
	}
	put(tail, "first")
	// A frame that would be whole behind the next one.
	next := append(make([]byte, frameHeaderSize), "second"...)
	forged := append(make([]byte, frameHeaderSize), "forged"...)
	sealFrame(forged, sealFrame(next, tail.sum, 6), 6)
	half := append(bytes.Repeat([]byte{1}, len(next)), forged...)
	if _, err := tail.f.WriteAt(half, tail.at); err != nil {
		t.Fatal(err)
	}
	if err := tail.Close(); err != nil {
		t.Fatal(err)
	}
	tail = open("first")
	put(tail, "second")
	if err := tail.Close(); err != nil {
		t.Fatal(err)
	}
	tail = open("first", "second")
	put(tail, "third")
	if err := tail.Close(); err != nil {
		t.Fatal(err)
	}
	tail = open("first", "second", "third")
	if err := tail.Close(); err != nil {
		t.Fatal(err)
	}
	stop := errors.New("stop")
	if _, err := db.OpenTail(3, 5, func([]byte) error { return stop }); !errors.Is(err, stop) {
		t.Error(err)
	}
	piece := AppendSum([]byte("piece"))
	if got, err := CutSum(piece); string(got) != "piece" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	piece[2]++
	for _, bad := range [][]byte{nil, piece[:3], piece} {
		if _, err := CutSum(bad); !errors.Is(err, disk.ErrCorrupt) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
