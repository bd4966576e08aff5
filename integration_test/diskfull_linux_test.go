package integration

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// smallDisk mounts a file system of a few megabytes.
func smallDisk(t *testing.T, size string) string {
	t.Helper()
	dir := t.TempDir()
	err := syscall.Mount("none", dir, "tmpfs", 0, "size="+size)
	switch {
	case err != nil && os.Getenv("FBFKV_CI") != "":
		t.Fatal("mount a tmpfs, for which the tests must run as root:", err)
	case err != nil:
		t.Skip("mount a tmpfs:", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// fillDisk writes a neighbour's file until the disk is full.
func fillDisk(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for size := 1 << 20; size > 0; {
		if _, err = f.Write(make([]byte, size)); err != nil {
			size /= 16
		}
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
}

// TestDiskFilledByNeighbour: a disk that somebody else fills at once, with no look at
// its free space in between, costs no answer and no restart. Writes are refused with
// nothing applied and go on by themselves; reads, and starts, go on all the time.
func TestDiskFilledByNeighbour(t *testing.T) {
	for _, fsync := range []string{"always", "everysec"} {
		t.Run(fsync, func(t *testing.T) {
			disk := smallDisk(t, "24m")
			s := &server{t: t, dir: filepath.Join(disk, "data"),
				args: []string{"--min-free-disk", "0", "--appendfsync", fsync}}
			s.start()
			t.Cleanup(s.cleanup)
			c, ctx := s.client(), context.Background()
			n, applied := 0, map[string]bool{}
			send := func() (refusal string) {
				p := c.Pipeline()
				first := n
				for range 500 {
					p.Do(ctx, "cincrby", "k", fmt.Sprint("id", n), 1)
					n++
				}
				replies, _ := p.Exec(ctx)
				for i, r := range replies {
					if r.Err() == nil {
						applied[fmt.Sprint("id", first+i)] = true
					} else if refusal = r.Err().Error(); !strings.HasPrefix(refusal,
						"MISCONF writes are refused, nothing was applied") {
						t.Fatal(refusal)
					}
				}
				return refusal
			}
			check := func() {
				t.Helper()
				if v, err := c.Get(ctx, "k").Int(); err != nil || v != len(applied) {
					t.Fatalf("%d operations were applied, and the counter is %d, %v", len(applied), v, err)
				}
			}
			send()
			neighbour := filepath.Join(disk, "neighbour")
			for range 2 {
				fillDisk(t, neighbour)
				for send() == "" {
				}
				check()
				_ = c.BgSave(ctx)
				s.crash()
				check()
				if send() == "" {
					t.Fatal("written to a full disk")
				}
				s.crash() // what the start before took is there for this one
				check()
				if err := os.Remove(neighbour); err != nil {
					t.Fatal(err)
				}
				eventually(t, patience, "writes go on", func() bool { return send() == "" })
				check()
				for i := 0; i < n; i += 100 { // also of those that were refused
					id := fmt.Sprint("id", i)
					seen, err := c.Do(ctx, "cseen", "k", id).Slice()
					if err != nil && !errors.Is(err, redis.Nil) || (len(seen) > 0) != applied[id] {
						t.Fatalf("%s: applied %v, and remembered is %v, %v", id, applied[id], seen, err)
					}
				}
			}
			s.stop()
		})
	}
}

// TestDirectoryReplaced: a server whose data directory is deleted or replaced ends by
// itself, and says why.
func TestDirectoryReplaced(t *testing.T) {
	for name, change := range map[string]func(dir string) error{
		"deleted": os.RemoveAll,
		"replaced": func(dir string) error {
			return errors.Join(os.Rename(dir, dir+".old"), os.Mkdir(dir, 0o700))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := &server{t: t, dir: filepath.Join(t.TempDir(), "data")}
			s.start()
			t.Cleanup(s.cleanup)
			if err := change(s.dir); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			if code := s.exitCode(); code != 1 {
				t.Errorf("exit status %d", code)
			}
			t.Log("noticed after", time.Since(began))
			if want := regexp.MustCompile(`the data directory was deleted or replaced while it was in use: .*/data`); !want.MatchString(s.log.String()) {
				t.Errorf("its log:\n%s", s.log)
			}
		})
	}
}
