package cluster

import (
	"errors"
	"log/slog"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/persistence"
)

// TestConfigurationIsKept: a node that goes by a configuration knows it, or a newer one, after a
// power loss, whatever its log has by then.
func TestConfigurationIsKept(t *testing.T) {
	mem := vfs.NewCrashableMem()
	d, err := OpenDirectory(mem, "d")
	must(t, err)
	var failed error
	m := &Meta{ending: ending{logger: slog.New(slog.DiscardHandler),
		fatal: func(err error) { failed = err }}, o: MetaOptions{Logger: slog.New(slog.DiscardHandler),
		Keep: d.Learn}}
	m.config.Store(new(Configuration))
	c := threeNodes()
	for c.Version = 7; c.Version < 9; c.Version++ {
		changed := make(chan struct{})
		m.changes.Store(&changed)
		m.learn(c) // as when the leader has answered that a change is committed
		<-changed
		after, err := OpenDirectory(mem.CrashClone(vfs.CrashCloneCfg{}), "d")
		must(t, err)
		if kept, _ := after.Configuration(); kept.Version < m.Configuration().Version || failed != nil {
			t.Errorf("after a power loss the node goes by version %d, and it went by version %d: %v",
				kept.Version, m.Configuration().Version, failed)
		}
		must(t, after.Close())
	}
	must(t, d.Close())
	m.learn(c) // which cannot be kept
	if now := m.Configuration().Version; now != 8 || !errors.Is(failed, persistence.ErrClosed) {
		t.Errorf("the node goes by version %d: %v", now, failed)
	}
}
