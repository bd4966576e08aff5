package cluster

import (
	"fmt"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/fbfkv/fbfkv/cluster/raftgroup"
)

// BenchmarkAppendEntries sends entries of one size to a node that answers at once, with
// and without a secret.
func BenchmarkAppendEntries(b *testing.B) {
	for _, secret := range []string{"", testSecret} {
		for _, size := range []int{0, 4 << 10, 512 << 10} {
			b.Run(fmt.Sprintf("encrypted=%v/bytes=%d", secret != "", size), func(b *testing.B) {
				_, from := startTransport(b, "1", NetOptions{Secret: secret})
				_, to := startTransport(b, "2", NetOptions{Secret: secret})
				go obey(b, to)
				request := &raft.AppendEntriesRequest{RPCHeader: raft.RPCHeader{ProtocolVersion: 3,
					ID: []byte(testID("1"))}, Term: 1,
					Entries: []*raft.Log{{Index: 1, Term: 1, Data: make([]byte, size),
						AppendedAt: time.Now()}}}
				b.SetBytes(int64(size))
				b.ReportAllocs()
				before := processorTime(b)
				for b.Loop() {
					var response raft.AppendEntriesResponse
					if err := from.AppendEntries(raft.ServerID(testID("2")), to.LocalAddr(), request,
						&response); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(processorTime(b)-before)/float64(b.N), "cpu-ns/op")
			})
		}
	}
}

// processorTime returns what the process has used: the load of others does not change it.
func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// startTransport starts a node, named by a digit, that speaks Raft's messages.
func startTransport(t testing.TB, name string, o NetOptions) (*Net, *raftgroup.Transport) {
	t.Helper()
	return startTransportAt(t, listener(t), name, o)
}

// startTransportAt does so at a listener.
func startTransportAt(t testing.TB, l net.Listener, name string, o NetOptions) (*Net, *raftgroup.Transport) {
	t.Helper()
	o.patience = time.Minute // a busy machine may take longer than handshakeTimeout
	o.Self = Identity{Cluster: testID("c"), Node: testID(name), Format: 1}
	n, err := Listen(l, o)
	if err != nil {
		t.Fatal(err)
	}
	transport := n.Transport(KindRaft, l.Addr().String(), time.Minute)
	t.Cleanup(func() {
		transport.Close()
		n.Close()
	})
	return n, transport
}

// obey answers every AppendEntries that a node gets, in the request's term, until the
// test ends.
func obey(t testing.TB, node *raftgroup.Transport) {
	for {
		select {
		case rpc := <-node.Consumer():
			rpc.Respond(&raft.AppendEntriesResponse{Term: rpc.Command.(*raft.AppendEntriesRequest).Term,
				Success: true}, nil)
		case <-t.Context().Done():
			return
		}
	}
}
