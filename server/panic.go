package server

import (
	"fmt"
	"reflect"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/fbfkv/fbfkv/store"
)

// panicked deals with a panic of a connection's goroutine, from a deferred
// function. A bug in a command costs the client its connection, and nobody else
// anything. A bug in the store costs the process: its memory may be ahead of its
// disk, and its locks may be held for ever; what was acknowledged is on disk, and
// the next start goes on from there (G8).
func (s *Server) panicked(value any, client string) {
	s.log.Error("panic while serving a client", "client", client,
		"panic", fmt.Sprint(value), "stack", string(debug.Stack()))
	if panickedIn(reflect.TypeFor[store.Store]().PkgPath()) {
		s.fatal(fmt.Errorf("panic in the store: %v", value))
	}
}

// panickedIn reports whether a function of the package was being carried out when
// the panic that is being recovered from began.
func panickedIn(path string) bool {
	var pcs [64]uintptr
	n := runtime.Callers(0, pcs[:])
	frames := runtime.CallersFrames(pcs[:n])
	for {
		f, more := frames.Next()
		if strings.HasPrefix(f.Function, path+".") {
			return true
		}
		if !more {
			return false
		}
	}
}
