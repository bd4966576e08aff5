package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fbfkv/fbfkv/tools/process"
)

// The load. A client is as a library for clusters: its pipelines have keys of all slots; each is divided by who leads
// the slot, and the next one begins when all of it is answered. So a shard that is slow holds all up. Or its pipelines
// have keys of one shard, and it has one under way for each.
const (
	depth    = 16     // operations of a pipeline for each shard, on average
	counters = 10_000 // for each shard
)

// load counts on a cluster.
type load struct {
	leaders []string
	keys    []key
	apart   [][]key // by leader; nil: a pipeline has keys of all
	run     string  // what the ids begin with, 8 bytes
	done    atomic.Int64
}

// key is a counter, and who leads its slot: an index into leaders.
type key struct {
	name   string
	leader int
}

// newLoad finds out who leads what. A server that is no cluster leads all.
func newLoad(ctx context.Context, address string, single, apart bool) (*load, error) {
	l := &load{leaders: []string{address}, run: fmt.Sprintf("%08x", rand.Uint32())}
	var owner [16384]int
	if !single {
		ranges, err := process.Slots(ctx, address)
		if err != nil {
			return nil, err
		}
		l.leaders = process.Leaders(ranges)
		for _, r := range ranges {
			for slot := r.Start; slot <= r.End; slot++ {
				owner[slot] = slices.Index(l.leaders, r.Nodes[0].Addr)
			}
		}
	}
	c := redis.NewClient(&redis.Options{Addr: address, DisableIdentity: true})
	defer c.Close()
	asked := c.Pipeline()
	for i := range counters * len(l.leaders) {
		l.keys = append(l.keys, key{name: fmt.Sprintf("k%05d", i)})
		if !single {
			asked.ClusterKeySlot(ctx, l.keys[i].name)
		}
	}
	answers, err := asked.Exec(ctx)
	for i, a := range answers {
		l.keys[i].leader = owner[a.(*redis.IntCmd).Val()]
	}
	if apart {
		l.apart = make([][]key, len(l.leaders))
		for _, k := range l.keys {
			l.apart[k.leader] = append(l.apart[k.leader], key{name: k.name})
		}
	}
	return l, err
}

// start starts the clients; they end with the context. The function that it returns waits for them, and
// returns the first thing that went wrong.
func (l *load) start(ctx context.Context, clients int) (wait func() error) {
	var all sync.WaitGroup
	errs := make(chan error, clients*len(l.leaders))
	start := func(c int, leaders []string, keys []key) {
		all.Go(func() {
			if err := l.client(ctx, c, leaders, keys); ctx.Err() == nil {
				errs <- err
			}
		})
	}
	for c := range clients {
		for i, keys := range l.apart {
			start(c*len(l.leaders)+i, l.leaders[i:i+1], keys)
		}
		if l.apart == nil {
			start(c, l.leaders, l.keys)
		}
	}
	return func() error {
		all.Wait()
		close(errs)
		return <-errs
	}
}

// client is one client, or its part for one shard.
func (l *load) client(ctx context.Context, c int, leaders []string, keys []key) error {
	conns, in := make([]net.Conn, len(leaders)), make([]*bufio.Reader, len(leaders))
	for i, address := range leaders {
		nc, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err != nil {
			return err
		}
		defer nc.Close()
		defer context.AfterFunc(ctx, func() { nc.SetDeadline(time.Now()) })()
		conns[i], in[i] = nc, bufio.NewReader(nc)
	}
	out, waiting := make([][]byte, len(conns)), make([]int, len(conns))
	for op := 0; ctx.Err() == nil; {
		for range depth * len(conns) {
			k := keys[rand.IntN(len(keys))]
			out[k.leader] = appendIncrement(out[k.leader], k.name, l.run, c, op)
			waiting[k.leader]++
			op++
		}
		for i, nc := range conns {
			if _, err := nc.Write(out[i]); err != nil {
				return err
			}
			out[i] = out[i][:0]
		}
		for i := range conns {
			n := int64(waiting[i])
			for ; waiting[i] > 0; waiting[i]-- {
				if err := readNumber(in[i]); err != nil {
					return err
				}
			}
			l.done.Add(n)
		}
	}
	return nil
}

// appendIncrement appends the command that adds 1 to a counter as the client's op-th operation. Lengths are fixed.
func appendIncrement(b []byte, name, run string, client, op int) []byte {
	return fmt.Appendf(b, "*4\r\n$7\r\nCINCRBY\r\n$6\r\n%s\r\n$20\r\n%s%04d%08d\r\n$1\r\n1\r\n", name, run, client, op%1e8)
}

// errMoved is that another node leads than before, or none.
var errMoved = errors.New("a leader was lost")

// readNumber reads the answer to an increment.
func readNumber(in *bufio.Reader) error {
	line, err := in.ReadSlice('\n')
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	if err == nil && (bytes.HasPrefix(line, []byte("-MOVED")) || bytes.HasPrefix(line, []byte("-TRYAGAIN")) || bytes.HasPrefix(line, []byte("-CLUSTERDOWN"))) {
		return errMoved
	}
	if err == nil && line[0] != ':' {
		return fmt.Errorf("an increment is answered with %.100q", line)
	}
	return err
}
