package cluster

import (
	"path"
	"strings"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/fbfkv/fbfkv/persistence/crashtest"
	"github.com/fbfkv/fbfkv/persistence/disk"
)

// TestFetchBadSync: a fetched file whose fsync failed is written once more, for no other fsync
// would write it.
func TestFetchBadSync(t *testing.T) {
	files := map[string][]byte{"META": []byte("meta"), "db/000001.sst": crashtest.Noise[:5000],
		"log/000001.log": crashtest.Noise[:700]}
	d, failed := crashtest.NewDisk(), false
	d.FailSyncs(func(name string) error {
		if failed || !strings.HasSuffix(name, ".sst") {
			return nil
		}
		failed = true
		return syscall.EIO
	})
	if _, err := newCutSource(t, files).fetcher(d).fetch(t.Context()); err != nil || !failed {
		t.Fatal(failed, err)
	}
	checkFetched(t, d.Lose(0, nil), "d/incoming", files)
}

// TestFetchAfterKill: a process that is killed after a failed fsync leaves a file that looks whole.
// The files that the next process fetches are on the disk all the same.
func TestFetchAfterKill(t *testing.T) {
	files := map[string][]byte{"META": []byte("meta"), "db/000001.sst": crashtest.Noise[:5000],
		"log/000001.log": crashtest.Noise[:700]}
	total := 4 + 5000 + 700
	for name := range files {
		d := crashtest.NewDisk()
		failed := false
		var killed *crashtest.Disk
		d.FailSyncs(func(at string) error {
			if !failed && at == "d/incoming/"+name {
				failed = true
				return syscall.EIO
			}
			return nil
		})
		fsys := errorfs.Wrap(d, errorfs.InjectorFunc(func(errorfs.Op) error {
			if failed && killed == nil { // what is done next
				killed = d.Kill()
			}
			return nil
		}))
		if _, err := newCutSource(t, files).fetcher(fsys).fetch(t.Context()); err != nil || killed == nil {
			t.Fatal(name, err)
		}
		f := newCutSource(t, files).fetcher(killed)
		if _, err := f.fetch(t.Context()); err != nil {
			t.Fatal(err)
		}
		checkFetched(t, killed.Lose(0, nil), "d/incoming", files)
		if n := f.counts.Counts().Bytes; n > uint64(total-len(files[name])) {
			t.Errorf("%s: it was fetched again, %d bytes", name, n)
		}
	}
}

// TestFetchIntoNewName: what was fetched is on the disk though the process before was killed when
// it had just made the directories.
func TestFetchIntoNewName(t *testing.T) {
	files := map[string][]byte{"META": []byte("meta"), "db/000001.sst": crashtest.Noise[:5000]}
	d := crashtest.NewDisk()
	must(t, disk.MakeDir(d, "d"))
	for _, sub := range cutDirs {
		must(t, d.MkdirAll(path.Join("d/incoming", sub), 0o700))
	}
	d = d.Kill()
	if _, err := newCutSource(t, files).fetcher(d).fetch(t.Context()); err != nil {
		t.Fatal(err)
	}
	checkFetched(t, d.Lose(0, nil), "d/incoming", files)
}
