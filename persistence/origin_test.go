package persistence

import (
	"bytes"
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/persistence/disk"
)

// TestOrigin: what a backup is of is in the backup, in its stream and in what is restored of
// either, until somebody uses it; what is damaged is not believed. It is asked for when everything
// has been copied.
func TestOrigin(t *testing.T) {
	mem := vfs.NewMem()
	db := mustOpen(t, testOptions(mem))
	text, copied := []byte(`{"shard":1}`), false
	refused := errors.New("partitions have moved")
	var err error
	db.Describe(func() func() ([]byte, error) {
		copied = false
		return func() ([]byte, error) {
			if !copied {
				t.Error("it is asked for before the copy is made")
			}
			return text, err
		}
	})
	committed := func() error { copied = true; return nil }
	err = refused
	if err := db.Backup("backup", func() {}, committed); !errors.Is(err, refused) {
		t.Errorf("a backup of which nobody knows what it is of: %v", err)
	}
	err = nil
	if err := db.Backup("backup", func() {}, committed); err != nil {
		t.Fatal(err)
	}
	staged, err := db.Stage(func() {}, committed)
	if err != nil {
		t.Fatal(err)
	}
	var stream bytes.Buffer
	if err := errors.Join(staged.Send(&stream, Counts{}, Counts{}), staged.Remove()); err != nil {
		t.Fatal(err)
	}
	mustClose(t, db)
	received, _, err := receive(stream.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if err := Restore(mem, "backup", "restored", func(_, _ int64) {}); err != nil {
		t.Fatal(err)
	}
	is := func(fsys vfs.FS, dir string, want []byte) {
		t.Helper()
		meta, got, err := ReadOrigin(fsys, dir)
		if err != nil || !bytes.Equal(got, want) || meta.Partitions == 0 {
			t.Errorf("%s: %v %q, want %q", dir, err, got, want)
		}
	}
	is(mem, "data", nil)
	is(mem, "backup", text)
	is(mem, "restored", text)
	is(received, "restored", text)

	o := testOptions(mem)
	o.Dir = "restored"
	mustClose(t, mustOpen(t, o))
	is(mem, "restored", nil)

	for _, damaged := range [][]byte{nil, text, append(sealed(text), 0),
		bytes.Replace(sealed(text), []byte("1"), []byte("2"), 1)} {
		if err := disk.WriteFile(mem, "backup", originName, damaged); err != nil {
			t.Fatal(err)
		}
		if _, got, err := ReadOrigin(mem, "backup"); !errors.Is(err, ErrCorrupt) || got != nil {
			t.Errorf("%q: %v %q", damaged, err, got)
		}
	}
}
