package main

import (
	"context"
	"log/slog"
	"net"
	"sync/atomic"

	"github.com/fbfkv/fbfkv/regions"
	"github.com/fbfkv/fbfkv/server"
	"github.com/fbfkv/fbfkv/store"
)

// regionEnd is this server's end of regions, with the settings that connections to others are made by.
type regionEnd struct {
	node     *regions.Node
	settings atomic.Pointer[server.Config]
}

// openRegions reads the other regions, once the store is a member of any.
func openRegions(st *store.Store, config *server.Config, certificates *server.TLS, log *slog.Logger) (*regionEnd, error) {
	e := new(regionEnd)
	e.settings.Store(config)
	node, err := regions.Open(regions.Options{
		Store:  st,
		Logger: log,
		Dial: func(ctx context.Context, address string) (net.Conn, error) {
			return server.DialRegion(ctx, e.settings.Load(), certificates, address)
		},
		Login: func() (user, password string) {
			c := &e.settings.Load().Region
			return c.User, c.Password
		},
	})
	e.node = node
	return e, err
}

// set makes changed settings those of connections that are made from now on.
func (e *regionEnd) set(config *server.Config) error {
	e.settings.Store(config)
	return nil
}
