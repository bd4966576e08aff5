package integration

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// TestDirectoryStopsGrowing applies the same load again and again under a short
// window. What has expired must leave the disk, so that the directory is not
// much larger after many rounds than after two. It is measured after a restart,
// when the storage engine has replaced its write-ahead log, which is recycled
// rather than shortened while it runs.
func TestDirectoryStopsGrowing(t *testing.T) {
	t.Parallel()
	const rounds, pipelines, length, keys = 7, 150, 200, 1000
	s := startServer(t, "--appendfsync", "no", "--save", "1 1")
	s.dial().want("+OK", "CTABLE", "CREATE", "short", "PREFIX", "counter-", "WINDOW", "1000", "SKEW", "0")
	c := s.client(func(o *redis.Options) { o.PoolSize = 1 })
	var sizes []int64
	n := 0
	for range rounds {
		for range pipelines {
			pipeline := c.Pipeline()
			for range length {
				pipeline.Do(context.Background(), "CINCRBY", fmt.Sprintf("counter-%d", n%keys),
					fmt.Sprintf("some-longer-operation-id-%d", n), 1)
				n++
			}
			if _, err := pipeline.Exec(context.Background()); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(shortWindow)
		s.restart()
		sizes = append(sizes, directorySize(t, s.dir))
	}
	t.Logf("%d operations; the directory's size, round by round: %d", n, sizes)
	if first, last := sizes[1], sizes[rounds-1]; last > 2*first {
		t.Errorf("the directory goes on growing: %d bytes after two rounds, %d after %d", first, last, rounds)
	}
	for i := range keys {
		s.dial().want(fmt.Sprintf(":%d", n/keys), "CGET", fmt.Sprintf("counter-%d", i))
	}
}

// directorySize sums the sizes of the files in a directory. Files may vanish
// meanwhile.
func directorySize(t *testing.T, dir string) (total int64) {
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if os.IsNotExist(err) {
			return nil
		}
		if err != nil || d.IsDir() {
			return err
		}
		if info, err := d.Info(); err == nil {
			total += info.Size()
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return total
}
