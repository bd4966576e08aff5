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

	"github.com/cockroachdb/pebble/v2/vfs"
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
		return do(s, Op{Kind: CMIncrBy, Keys: [][]byte{fmt.Appendf(nil, "c%d", c), fmt.Appendf(nil, "c%d-twin", c)}, Deltas: []int64{n, n}, ID: id})
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
				t.Fatalf("operation %d of client %d was acknowledged before the backup and is not in it", n+1, c)
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
