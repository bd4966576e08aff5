package process

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
)

// Load counts on servers, once per UUIDv7, on counters that the ids choose. A client is as a library for clusters: a pipeline
// has keys of all leaders, is divided by who leads the key, and the next one begins when all of it is answered. So a leader
// that is slow holds all up.
type Load struct {
	Leaders []string
	Keys    []Key
	Clients int
	Depth   int          // operations of a pipeline for each leader, on average
	Rate    int          // operations per second of all clients; 0: as fast as they are answered
	Done    atomic.Int64 // operations that were answered
	// Twin, if it is not nil, may say another id that an operation is to have, and hears which one it had.
	Twin func(id uuid.UUID) uuid.UUID
}

// Key is a counter, and who leads it: an index into the leaders.
type Key struct {
	Name   string
	Leader int
}

// Keys are so many counters of the first leader.
func Keys(n int) (keys []Key) {
	for i := range n {
		keys = append(keys, Key{Name: fmt.Sprintf("k%05d", i)})
	}
	return keys
}

// LuaRecipe is what people run on Redis today: it answers a duplicate with the counter's present value.
const LuaRecipe = `if redis.call('SET', KEYS[2], '', 'NX', 'EX', ARGV[2]) then
 return redis.call('INCRBY', KEYS[1], ARGV[1])
end
return tonumber(redis.call('GET', KEYS[1]) or 0)`

// ErrMoved is that another node leads than before, or none.
var ErrMoved = errors.New("a leader was lost")

// Run counts until the context is done, which is no error.
func (l *Load) Run(ctx context.Context) error {
	var all sync.WaitGroup
	errs := make([]error, l.Clients)
	for i := range l.Clients {
		all.Go(func() {
			if errs[i] = l.client(ctx); ctx.Err() != nil {
				errs[i] = nil
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

func (l *Load) client(ctx context.Context) error {
	conns, in := make([]net.Conn, len(l.Leaders)), make([]*bufio.Reader, len(l.Leaders))
	for i, address := range l.Leaders {
		nc, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err != nil {
			return err
		}
		defer nc.Close()
		defer context.AfterFunc(ctx, func() { nc.SetDeadline(time.Now()) })()
		conns[i], in[i] = nc, bufio.NewReader(nc)
	}
	depth := l.Depth * len(l.Leaders)
	var pace <-chan time.Time
	if l.Rate > 0 {
		depth = max(1, min(depth, l.Rate/l.Clients/50))
		t := time.NewTicker(time.Duration(float64(time.Second) * float64(l.Clients*depth) / float64(l.Rate)))
		defer t.Stop()
		pace = t.C
	}
	out, waiting := make([][]byte, len(conns)), make([]int, len(conns))
	for ctx.Err() == nil {
		if pace != nil {
			select {
			case <-pace:
			case <-ctx.Done():
				return nil
			}
		}
		for range depth {
			l.increment(out, waiting)
		}
		for i, nc := range conns {
			if _, err := nc.Write(out[i]); err != nil {
				return err
			}
			out[i] = out[i][:0]
		}
		for i := range conns {
			for n := waiting[i]; waiting[i] > 0; waiting[i]-- {
				if err := readNumber(in[i]); err != nil {
					return err
				}
				if waiting[i] == 1 {
					l.Done.Add(int64(n))
				}
			}
		}
	}
	return nil
}

// increment appends an operation to what its leader is sent.
func (l *Load) increment(out [][]byte, waiting []int) {
	id := newID()
	if l.Twin != nil {
		id = l.Twin(id)
	}
	k := l.Keys[binary.BigEndian.Uint32(id[10:])%uint32(len(l.Keys))] // twins have the same counter
	out[k.Leader] = fmt.Appendf(out[k.Leader], "*4\r\n$7\r\nCINCRBY\r\n$%d\r\n%s\r\n$36\r\n%s\r\n$1\r\n1\r\n",
		len(k.Name), k.Name, id)
	waiting[k.Leader]++
}

// newID is a UUIDv7. The package's own is slower than the servers.
func newID() (id uuid.UUID) {
	binary.BigEndian.PutUint64(id[:], uint64(time.Now().UnixMilli())<<16|0x7000|rand.Uint64N(1<<12))
	binary.BigEndian.PutUint64(id[8:], rand.Uint64()>>2|1<<63)
	return id
}

// readNumber reads the answer to an increment.
func readNumber(in *bufio.Reader) error {
	line, err := in.ReadSlice('\n')
	switch {
	case err == io.EOF:
		return io.ErrUnexpectedEOF
	case err != nil:
		return err
	case line[0] == ':':
		return nil
	}
	for _, code := range []string{"-MOVED", "-TRYAGAIN", "-CLUSTERDOWN"} {
		if bytes.HasPrefix(line, []byte(code)) {
			return ErrMoved
		}
	}
	return fmt.Errorf("an increment is answered with %.100q", line)
}
