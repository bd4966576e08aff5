package integration

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestShardsAreRestored backs up a cluster of two shards and makes another one of that, while the
// command and a node are killed. Then the first one loses half of each shard for ever, and the rest
// becomes a cluster as well. Every key and every opid is where it was.
func TestShardsAreRestored(t *testing.T) {
	t.Parallel()
	all := startNodes(t, 4)
	operate(t, 0, "is complete", append([]string{"create", "--replicas", "1"}, addresses(all...)...)...)
	changeTables(t, all[0], "CREATE", "kept", "PREFIX", "kept")
	ids, shards := shardsOf(t, all[0]), byShard(t, all...)
	countsEverywhere(t, clusterClient(t, all...), "a", 1)
	dir := t.TempDir()
	backup, recovered := filepath.Join(dir, "backup"), filepath.Join(dir, "recovered")
	operate(t, 0, "is backed up", "backup", all[0].address(), backup)
	countsEverywhere(t, clusterClient(t, all...), "b", 2)

	for _, s := range all {
		s.kill()
	}
	left := []string{shards[0][1].dir, shards[1][0].dir}
	operate(t, 0, "lacks "+ids[1], "recover", left[0], "--to", recovered)
	for range 2 {
		operate(t, 0, "is complete", append([]string{"recover", "--to", recovered}, left...)...)
	}
	operate(t, 1, "is not empty", "recover", shards[0][0].dir, "--to", recovered)
	shards[1][0].launch()
	if code := shards[1][0].exitCode(); code != 1 ||
		!strings.Contains(shards[1][0].log.String(), "never takes part in its cluster again") {
		t.Errorf("a directory that was recovered: %d\n%s", code, shards[1][0].log)
	}

	again := startNodes(t, 4)
	restore := append([]string{"restore", recovered, "--replicas", "1"}, addresses(again...)...)
	operate(t, 1, "no backup has partitions 0 to 15: that of the shard "+ids[0]+" is missing", "restore",
		filepath.Join(recovered, ids[1]), again[0].address())
	operate(t, 1, "there are backups of 2 shards",
		append([]string{"restore", "--replicas", "3"}, restore[1], again[0].address(), again[1].address(),
			again[2].address(), again[3].address())...)
	operate(t, 0, "is complete", restore...)
	isRestored(t, ids, "b", 2, again...)

	again = startNodes(t, 4)
	restore = append([]string{"restore", backup, "--replicas", "1"}, addresses(again...)...)
	first := background(t, append([]string{"cluster", "restore", "--yes"}, restore[1:]...)...)
	time.Sleep(700 * time.Millisecond)
	first.cmd.Process.Kill()
	<-first.done
	again[1].crash()
	slices.Reverse(restore[4:]) // in whatever order they are named
	operate(t, 0, "", restore...)
	operate(t, 0, "exists already", restore...)
	isRestored(t, ids, "a", 1, again...)

	for _, s := range again { // each of the nodes has become one of another cluster
		if _, err := os.Stat(filepath.Join(s.dir, "SHARD")); err == nil {
			t.Error("a directory that serves says that it is a backup")
		}
	}
}

// isRestored expects a cluster of shards with these ids, the table, and that an opid is known, after which
// others count. The replicas have as many keys as their leaders.
func isRestored(t *testing.T, ids []string, opid string, want int, all ...*server) {
	t.Helper()
	if got := shardsOf(t, all[0]); !slices.Equal(got, ids) {
		t.Errorf("the shards are %q, want %q", got, ids)
	}
	c := clusterClient(t, all...)
	countsEverywhere(t, c, opid, want)
	countsEverywhere(t, c, "new", want+1)
	eventually(t, patience, "each replica has what its leader has", func() bool {
		return !slices.ContainsFunc(byShard(t, all...), func(shard []*server) bool {
			if len(shard) < 2 {
				return true
			}
			one, err := redisAsk(shard[0], "DBSIZE")
			two, err2 := redisAsk(shard[1], "DBSIZE")
			return err != nil || err2 != nil || one != two || one == "0" ||
				!slices.Contains(tablesOf(t, shard[0]), "kept") ||
				!slices.Contains(tablesOf(t, shard[1]), "kept")
		})
	})
}
