package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"path/filepath"
	"sync/atomic"

	"github.com/fbfkv/fbfkv/persistence"
	"github.com/fbfkv/fbfkv/persistence/disk"
	"github.com/fbfkv/fbfkv/regions"
	"github.com/fbfkv/fbfkv/server"
	"github.com/fbfkv/fbfkv/store"
)

// regionEnd is this server's end of regions.
type regionEnd struct {
	node   *regions.Node
	first  *server.Config
	server atomic.Pointer[server.Server] // nil: not yet
}

// config returns the settings in force.
func (e *regionEnd) config() *server.Config {
	if s := e.server.Load(); s != nil {
		return s.Config()
	}
	return e.first
}

// openRegions reads the other regions, once the store is a member of any. It refuses to if
// strangers could read this one. In is the cluster of which the store is a replica of a shard; nil:
// there is none.
func openRegions(st *store.Store, in *regions.Cluster, o Options) (*regionEnd, error) {
	e := &regionEnd{first: o.Config}
	unsafe := func() error { return e.config().RegionUnsafe(o.Users) }
	dial := o.DialRegion
	if dial == nil {
		dial = func(ctx context.Context, address string) (net.Conn, error) {
			return server.DialRegion(ctx, e.config(), o.Certificates, address)
		}
	}
	if _, member := st.Regions(); member {
		if err := unsafe(); err != nil {
			return nil, err
		}
	}
	node, err := regions.Open(regions.Options{
		Store:   st,
		Cluster: in,
		Secure:  o.Config.Region.TLS,
		Logger:  o.Logger,
		Dial:    dial,
		Login: func() (user, password string) {
			c := &e.config().Region
			return c.User, c.Password
		},
		Announce: func() string { return e.config().Region.Announce },
		Unsafe:   unsafe,
		Remember: func(b []byte) error {
			return disk.WriteFile(o.FS, o.Config.Dir, persistence.RegionsName, b)
		},
		Recall: func() ([]byte, error) {
			b, err := disk.ReadFile(o.FS, filepath.Join(o.Config.Dir, persistence.RegionsName),
				regions.MaxRemembered)
			if errors.Is(err, fs.ErrNotExist) {
				return nil, nil
			}
			return b, err
		},
	})
	if err != nil {
		return nil, fmt.Errorf("regions: %w", err)
	}
	e.node = node
	return e, nil
}
