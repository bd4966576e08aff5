//go:build !linux

package server

import (
	"net"

	"github.com/fbfkv/fbfkv/commands"
)

// eventLoop exists on Linux only; elsewhere there is none, and every connection
// has a goroutine.
type eventLoop struct{}

// polled would be a connection that the event loop serves.
type polled struct{ conn }

func (*Server) startLoop() error { return nil }

func (*eventLoop) adopt(net.Conn, *commands.Session) *polled { return nil }

func (*eventLoop) close() {}

func (*eventLoop) trim() int64 { return 0 }
