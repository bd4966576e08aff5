package main

import (
	"fmt"
	"testing"

	"github.com/fbfkv/fbfkv/persistence"
	"github.com/fbfkv/fbfkv/server"
)

// TestFileBudget: clients come before data, which gets what they leave; together they
// never have more than there is, unless that is not enough for the least.
func TestFileBudget(t *testing.T) {
	const own, least, most = 72, persistence.MinOpenFiles, persistence.MaxOpenFiles
	for _, tt := range []struct{ limit, asked, clients, storage int }{
		{1024, 10000, 1024 - own - least, least}, // 696
		{1024, 100, 100, 1024 - own - 100},
		{4096, 10000, 4096 - own - least, least},
		{16384, 10000, 16384 - own - most, most},
		{1 << 20, 10000, 1<<20 - own - most, most},
		{256, 10000, leastClients, least},
	} {
		b := divideFiles(tt.limit, own, tt.asked)
		if b.clients != tt.clients || b.storage != tt.storage {
			t.Errorf("%d descriptors, %d clients asked for: %+v", tt.limit, tt.asked, b)
		}
	}
	for limit := range 20_000 {
		for _, asked := range []int{1, 500, 10_000} {
			b := divideFiles(limit, own, asked)
			if sum := own + b.clients + b.storage; sum > max(limit, own+leastClients+least) ||
				b.storage < least {
				t.Fatalf("%d descriptors, %d clients asked for: %+v", limit, asked, b)
			}
		}
	}
}

// TestClientsAreBounded: CONFIG SET allows no more clients than there are descriptors for.
func TestClientsAreBounded(t *testing.T) {
	b := fileBudget{clients: 700}
	for asked, want := range map[int]string{
		700: "<nil>",
		701: "there are file descriptors for 700 clients; a start with a larger maxclients or ulimit -n " +
			"may give more",
	} {
		if got := fmt.Sprint(b.check(&server.Config{MaxClients: asked})); got != want {
			t.Errorf("%d clients: %s", asked, got)
		}
	}
}
