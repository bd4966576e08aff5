package regions

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/store"
	"github.com/fbfkv/fbfkv/store/part"
)

// TestTriesEachHalfMinute: a region of which nothing is heard, for however long, is tried anew at
// least twice a minute, so that it is read soon when its link is mended without a word; but not
// more often than four times.
func TestTriesEachHalfMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := store.Open(store.Options{Dir: "data", FS: vfs.NewMem(), Partitions: 1, Seed: [16]byte{1},
			SnapshotInterval: -1, MinFreeDisk: -1})
		must(t, err)
		defer s.CloseNow()
		must(t, s.SetRegions(store.RegionSet{Group: 77, Members: []store.RegionMember{
			{Region: 0, Name: "eu", Partitions: 1, Incarnation: s.Meta().Incarnation},
			{Region: 1, Name: "us", Partitions: 1, Incarnation: 9},
		}}))
		var tried []time.Time
		m, err := Start(Options{
			Store: s, Peers: map[part.Region]string{1: "us:6379"},
			Dial: func(ctx context.Context, _ string) (net.Conn, error) {
				tried = append(tried, time.Now())
				<-ctx.Done()
				return nil, ctx.Err()
			},
			// nothing is compared or asked
			after: func(time.Duration) <-chan time.Time { return nil }, sure: true,
		})
		must(t, err)
		time.Sleep(time.Hour)
		must(t, m.Close())
		longest := time.Duration(0)
		for i := range tried[1:] {
			longest = max(longest, tried[i+1].Sub(tried[i]))
		}
		t.Logf("%d times in an hour, %v apart at most", len(tried), longest)
		if len(tried) < 120 || len(tried) > 241 || longest > 30*time.Second {
			t.Error("that is not what it should be")
		}
	})
}
