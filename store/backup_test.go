package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/persistence"
)

// TestBackupUnderLoad backs up again and again while operations, snapshots and
// table changes go on. Each copy is sound, holds everything acknowledged before
// it was asked for, and of each later operation both effect and opid or
// neither: once everything is sent to it again its counters are exact (G4).
func TestBackupUnderLoad(t *testing.T) {
	for _, fsync := range []Fsync{Always, Everysec, No} {
		t.Run(fsync.String(), func(t *testing.T) {
			fs := vfs.NewMem()
			s := testStore(t, func(o *Options) { o.FS, o.Fsync = fs, fsync })
			var sent, acked [4]atomic.Int64
			stop := make(chan struct{})
			var clients sync.WaitGroup
			for c := range sent {
				clients.Go(func() {
					for n := int64(1); ; n++ {
						select {
						case <-stop:
							return
						default:
						}
						sent[c].Store(n)
						if op := backupOp(s, c, n); op.Err != nil {
							t.Error(op.Err)
							return
						}
						acked[c].Store(n)
					}
				})
			}
			clients.Go(func() {
				for n := 0; ; n++ {
					select {
					case <-stop:
						return
					default:
						s.checkpoint(s.partitions[n%4], true)
						s.CreateTable(TableOptions{Name: "t", Prefix: "c1", Mode: Exact})
						s.DropTable("t")
					}
				}
			})
			var before [3][4]int64
			for i := range before {
				for c := range acked {
					before[i][c] = acked[c].Load()
				}
				must(t, s.Backup(fmt.Sprintf("backup%d", i)))
			}
			close(stop)
			clients.Wait()
			for i := range before {
				dir := fmt.Sprintf("backup%d", i)
				r := checkSound(t, fs, dir)
				if r.Snapshots == 0 {
					t.Error("no snapshot in the backup")
				}
				c := testStore(t, func(o *Options) { o.Dir, o.FS, o.Fsync = dir, fs, fsync })
				resendToBackup(t, c, before[i][:], sent[:])
				must(t, c.Close())
			}
		})
	}
}

// backupOp is the n-th operation of a client: one counter, or two at once.
func backupOp(s *Store, c int, n int64) Op {
	id := []byte(strconv.FormatInt(n, 10))
	if n%3 == 0 {
		return do(s,
			Op{Kind: CMIncrBy, Keys: [][]byte{fmt.Appendf(nil, "c%d", c), fmt.Appendf(nil, "c%d-twin", c)},
				Deltas: []int64{n, n}, ID: id})
	}
	return do(s, Op{Kind: CIncrBy, Key: fmt.Appendf(nil, "c%d", c), ID: id, Delta: n})
}

func resendToBackup(t *testing.T, s *Store, before []int64, sent []atomic.Int64) {
	t.Helper()
	for c := range sent {
		had, twin := int64(0), int64(0)
		last := sent[c].Load()
		value, _ := get(s, fmt.Sprintf("c%d", c))
		for n := range last {
			op := backupOp(s, c, n+1)
			if op.Err != nil {
				t.Fatal(op.Err)
			}
			if op.Applied && n+1 <= before[c] {
				t.Fatalf("operation %d of client %d was acknowledged before the backup and is not in it", n+1,
					c)
			}
			if !op.Applied {
				had += n + 1
			}
			if (n+1)%3 == 0 {
				twin += n + 1
			}
		}
		if value != had {
			t.Errorf("c%d was %d in the backup, the opids in it sum up to %d", c, value, had)
		}
		if v, _ := get(s, fmt.Sprintf("c%d", c)); v != last*(last+1)/2 {
			t.Errorf("c%d is %d after all was re-sent, want %d", c, v, last*(last+1)/2)
		}
		if v, _ := get(s, fmt.Sprintf("c%d-twin", c)); v != twin {
			t.Errorf("c%d-twin is %d after all was re-sent, want %d", c, v, twin)
		}
	}
}

// TestBackupRefusals: a backup never overwrites anything, and a refused one
// leaves nothing behind.
func TestBackupRefusals(t *testing.T) {
	fs := vfs.NewMem()
	s := testStore(t, func(o *Options) { o.FS = fs })
	cincr(s, "k", "1", 1)
	must(t, s.Backup("b"))
	for _, dir := range []string{"b", "data", "data/b", "data/db/x"} {
		if err := s.Backup(dir); !errors.Is(err, ErrTarget) {
			t.Errorf("%s: %v", dir, err)
		}
	}
	must(t, fs.MkdirAll("empty", 0o755))
	must(t, s.Backup("empty"))
	checkSound(t, fs, "empty")
	names, err := fs.List("")
	must(t, err)
	for _, name := range names {
		if strings.HasSuffix(name, "partial") {
			t.Errorf("left behind: %s", name)
		}
	}
	s.freeze(errors.New("injected"))
	if err := s.Backup("frozen"); !errors.Is(err, ErrUnknownOutcome) {
		t.Errorf("frozen: %v", err)
	}
}

// TestRestore: what is restored answers as the original did, and the backup
// stays as it was although the restored directory is written to.
func TestRestore(t *testing.T) {
	root := t.TempDir()
	dir := func(name string) string { return filepath.Join(root, name) }
	open := func(name string) *Store {
		return testStore(t, func(o *Options) { o.Dir, o.FS = dir(name), nil })
	}
	s := open("data")
	for i := range 200 {
		cincr(s, "k"+strconv.Itoa(i%9), strconv.Itoa(i), int64(i))
	}
	must(t, s.Backup(dir("backup")))
	must(t, s.Close())
	was := treeOf(t, vfs.Default, dir("backup"))
	done, total := int64(0), int64(0)
	must(t, Restore(dir("backup"), dir("new"), func(d, t int64) { done, total = d, t }))
	if done != total || total == 0 {
		t.Errorf("progress ended at %d of %d", done, total)
	}
	if err := Restore(dir("backup"), dir("new"), func(_, _ int64) {}); !errors.Is(err, ErrTarget) {
		t.Errorf("restored over a directory: %v", err)
	}
	s = open("new")
	for i := range 200 {
		if op := cincr(s, "k"+strconv.Itoa(i%9), strconv.Itoa(i), int64(i)); op.Err != nil || op.Applied {
			t.Fatalf("operation %d: %+v", i, op)
		}
		cincr(s, "more", strconv.Itoa(i), 1)
	}
	must(t, s.Close())
	must(t, os.Remove(filepath.Join(dir("backup"), "LOCK")))
	if now := treeOf(t, vfs.Default, dir("backup")); now != was {
		t.Errorf("the backup was changed:\n%s\n%s", was, now)
	}
	checkSound(t, vfs.Default, dir("backup"))
}

// TestCopiesAreOtherIncarnations: what a backup or a restored directory does never has a
// sequence of what its original has done since, nor the name of any other directory; and
// it can be checked, crashed and copied again.
func TestCopiesAreOtherIncarnations(t *testing.T) {
	root := t.TempDir()
	dir := func(name string) string { return filepath.Join(root, name) }
	ops := 0
	names, taken := make(map[persistence.Meta]string), make(map[string]uint64)
	// use copies a directory and writes to it: beyond all sequences of its original.
	use := func(name, original, backup string) {
		t.Helper()
		s := testStore(t, func(o *Options) { o.Dir, o.FS, o.Partitions = dir(name), nil, 1 })
		m := s.db.Meta()
		if other, ok := names[m]; ok && other != name {
			t.Fatalf("%s is called what %s is", name, other)
		}
		names[m] = name
		p := s.partitions[0]
		if backup != "" {
			must(t, s.Backup(dir(backup)))
		}
		for range 50 {
			ops++
			if op := cincr(s, "k", strconv.Itoa(ops), 1); op.Err != nil || !op.Applied {
				t.Fatal(op)
			}
			if p.seq <= taken[original] {
				t.Fatalf("sequence %d of %s is one of %s", p.seq, name, original)
			}
		}
		taken[name] = p.seq
		if n := s.Stats().Entries; n > 1000 || s.Stats().Changes > 1000 {
			t.Errorf("%s: %d entries, %d changes", name, n, s.Stats().Changes)
		}
		must(t, s.CloseNow()) // so that the next start redoes the jump
		checkSound(t, vfs.Default, dir(name))
	}
	restore := func(from, to string) {
		t.Helper()
		must(t, Restore(dir(from), dir(to), func(_, _ int64) {}))
	}
	use("data", "", "backup")
	use("data", "", "")
	restore("backup", "a")
	restore("backup", "b")
	for range 3 {
		use("a", "data", "")
	}
	use("b", "data", "of b")
	restore("of b", "c")
	use("c", "b", "")
	use("backup", "data", "") // a backup that is served from
	restore("a", "d")         // a directory without a backup
	use("d", "a", "")
	ids := make(map[[16]byte]bool)
	for m := range names {
		ids[m.ID] = true
	}
	if len(ids) != 1 || len(names) != 6 {
		t.Errorf("%d ids, %d names", len(ids), len(names))
	}
}

// TestJumpIsKept: a copy's sequences jump once, whatever is left of the log.
func TestJumpIsKept(t *testing.T) {
	root := t.TempDir()
	open := func(name string) *Store {
		return testStore(t, func(o *Options) {
			o.Dir, o.FS, o.Partitions = filepath.Join(root, name), nil, 1
		})
	}
	s := open("data")
	must(t, s.Backup(filepath.Join(root, "copy")))
	must(t, s.Close())
	for range 4 { // snapshots enough to trim the jump
		s = open("copy")
		if n := s.partitions[0].seq >> incarnationBits; n != 1 {
			t.Fatalf("it has jumped %d times", n)
		}
		cincr(s, "k", strconv.FormatUint(s.partitions[0].seq, 10), 1)
		must(t, s.Close())
	}
}

// TestStreamBackup: one backup at a time, as a stream or not; one that is given up leaves
// nothing, and one that is read to its end has everything that was acknowledged before it
// was begun. Reading it is not yet a success.
func TestStreamBackup(t *testing.T) {
	fs := vfs.NewMem()
	s := testStore(t, func(o *Options) { o.FS = fs })
	for n := int64(1); n <= 300; n++ {
		if op := backupOp(s, 0, n); op.Err != nil {
			t.Fatal(op.Err)
		}
	}
	given, err := s.StreamBackup()
	must(t, err)
	if _, err := s.StreamBackup(); !errors.Is(err, ErrBackupRunning) {
		t.Errorf("a second stream: %v", err)
	}
	if err := s.Backup("backup"); !errors.Is(err, ErrBackupRunning) {
		t.Errorf("a backup beside a stream: %v", err)
	}
	if stage, _, total := s.BackupProgress(); stage != "stream" || total == 0 {
		t.Errorf("the progress is %s of %d", stage, total)
	}
	if _, err := given.Read(make([]byte, 10)); err != nil {
		t.Error(err)
	}
	must(t, given.Close())
	must(t, given.Close())
	stream, err := s.StreamBackup()
	must(t, err)
	info, err := persistence.RestoreStream(fs, stream, "restored", func(dir string) error {
		checkSound(t, fs, dir)
		return nil
	}, func(int64, int64) {})
	must(t, err)
	must(t, stream.Close())
	if stage, _, _ := s.BackupProgress(); stage != "" || info.Before != info.After || info.Before.Keys != 2 {
		t.Errorf("stage %q after a stream that says %+v", stage, info)
	}
	c := testStore(t, func(o *Options) { o.Dir, o.FS = "restored", fs })
	if got := c.Stats(); got.Recovery.Keys != 2 {
		t.Errorf("%d keys are restored", got.Recovery.Keys)
	}
	if op := backupOp(c, 0, 300); op.Err != nil || op.Applied {
		t.Errorf("the last operation again: %+v", op)
	}
	if !s.Stats().LastBackup.IsZero() {
		t.Error("nobody knows whether the stream has arrived")
	}
	id := s.db.Meta().ID
	if err := s.BackupVerified(id, time.Now().Add(time.Hour)); !errors.Is(err, ErrTime) {
		t.Errorf("a backup of the future: %v", err)
	}
	id[0]++
	if err := s.BackupVerified(id, info.At); !errors.Is(err, ErrOtherBackup) {
		t.Errorf("another's backup: %v", err)
	}
	must(t, s.BackupVerified(info.ID, info.At))
	at := s.Stats().LastBackup
	must(t, s.BackupVerified(info.ID, info.At.Add(-time.Hour)))
	if !at.Equal(info.At.Truncate(time.Second)) || !s.Stats().LastBackup.Equal(at) {
		t.Errorf("the last backup was made at %v, then at %v", at, s.Stats().LastBackup)
	}
}
