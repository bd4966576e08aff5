package persistence

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"sort"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

func writeSnapshot(t testing.TB, db *DB, partition uint16, seq uint64, content []byte) {
	t.Helper()
	if err := trySnapshot(db, partition, seq, content); err != nil {
		t.Fatal(err)
	}
}

func trySnapshot(db *DB, partition uint16, seq uint64, content []byte) error {
	w, err := db.CreateSnapshot(partition, seq)
	if err != nil {
		return err
	}
	if _, err := w.Write(content); err != nil {
		w.Abort()
		return err
	}
	return w.Commit()
}

func readSnapshot(db *DB, s Snapshot) ([]byte, error) {
	r, err := db.OpenSnapshot(s)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(r)
	return b, errors.Join(err, r.Close())
}

func snapshotNames(t testing.TB, db *DB) string {
	t.Helper()
	names, err := db.fs.List(db.path(snapshotName))
	if err != nil {
		t.Fatal(err)
	}
	sort.Strings(names)
	return strings.Join(names, " ")
}

func randomBytes(n int) []byte {
	r := rand.New(rand.NewPCG(1, uint64(n)))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

func TestSnapshotRoundTrip(t *testing.T) {
	db := mustOpen(t, testOptions(vfs.NewMem()))
	defer mustClose(t, db)
	for i, n := range []int{0, 1, frameMaxSize - 1, frameMaxSize, frameMaxSize + 1, 3*frameMaxSize + 5} {
		content := randomBytes(n)
		writeSnapshot(t, db, 7, uint64(i), content)
		list, err := db.Snapshots(7)
		if err != nil {
			t.Fatal(err)
		}
		expect(t, "newest", list[0].Seq, uint64(i))
		expect(t, "kept", len(list), min(i+1, 2))
		got, err := readSnapshot(db, list[0])
		if err != nil || !bytes.Equal(got, content) {
			t.Fatal(n, len(got), err)
		}
	}
	writeSnapshot(t, db, 8, 1, nil)
	expect(t, "files", snapshotNames(t, db),
		"p0007-00000000000000000004.fbf p0007-00000000000000000005.fbf p0008-00000000000000000001.fbf")
}
