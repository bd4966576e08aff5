package oplog

import (
	"fmt"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/persistence/crashtest"
	"github.com/fbfkv/fbfkv/persistence/disk"
)

// testOptions returns options of a log in the directory data/log.
func testOptions(fsys vfs.FS) Options {
	return Options{FS: fsys, Dir: "data/log", MarkDir: "data", FileSize: 32 << 20, Partitions: 16}
}

// manualTicks leaves the background fsync to the test.
func manualTicks(o Options) Options {
	o.Ticks = make(chan time.Time)
	return o
}

func mustOpen(t testing.TB, o Options) *Log {
	t.Helper()
	l, err := tryOpen(o)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// tryOpen makes the directory and opens the log.
func tryOpen(o Options) (*Log, error) {
	if err := disk.MakeDir(o.FS, o.Dir); err != nil {
		return nil, err
	}
	return Open(o)
}

func mustClose(t testing.TB, l *Log) {
	t.Helper()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// commit applies what fill adds and waits for it.
func commit(l *Log, fill func(b *Batch)) error {
	b := l.NewBatch()
	fill(b)
	if err := b.Apply(); err != nil {
		return err
	}
	return b.Wait()
}

func mustCommit(t testing.TB, l *Log, fill func(b *Batch)) {
	t.Helper()
	if err := commit(l, fill); err != nil {
		t.Fatal(err)
	}
}

func mustFlip(t testing.TB, fsys vfs.FS, path string, offset int64) {
	t.Helper()
	if err := crashtest.Flip(fsys, path, offset); err != nil {
		t.Fatal(err)
	}
}

func expect[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Fatalf("%s: got %v, want %v", what, got, want)
	}
}

// testOptionsAt returns options of a log that has a directory for itself.
func testOptionsAt(fsys vfs.FS, dir string, policy Fsync) Options {
	o := testOptions(fsys)
	o.Dir, o.MarkDir, o.Fsync = dir, dir, policy
	return o
}

// logOf renders a partition's log from a sequence on.
func logOf(t testing.TB, l *Log, partition uint16, from uint64) string {
	t.Helper()
	s := ""
	err := l.Read(partition, from, func(seq uint64, content []byte) error {
		s += fmt.Sprintf("%d=%s ", seq, content)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}
