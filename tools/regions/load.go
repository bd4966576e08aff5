package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
)

const (
	clients  = 8
	depth    = 32
	counters = 10_000
)

// load counts once per UUIDv7 on counters that are chosen by chance.
type load struct {
	name string
	rate int // operations per second; 0: as fast as they are answered
	done atomic.Int64
	// twin, if it is not nil, may say another opid that an operation is to have, and hears which one it had.
	twin func(id uuid.UUID) uuid.UUID
}

func newLoad(name string, rate int) *load { return &load{name: name, rate: rate} }

// run runs the load against a server for a while, or until ctx is done.
func (l *load) run(ctx context.Context, address string, d time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	var all sync.WaitGroup
	errs := make([]error, clients)
	for i := range clients {
		all.Go(func() {
			if errs[i] = l.client(ctx, address); ctx.Err() != nil {
				errs[i] = nil
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

func (l *load) client(ctx context.Context, address string) error {
	nc, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer nc.Close()
	defer context.AfterFunc(ctx, func() { nc.SetDeadline(time.Now()) })()
	n := depth
	var pace <-chan time.Time
	if l.rate > 0 {
		n = max(1, min(depth, l.rate/clients/50))
		t := time.NewTicker(time.Duration(float64(time.Second) * clients * float64(n) / float64(l.rate)))
		defer t.Stop()
		pace = t.C
	}
	in, out := bufio.NewReader(nc), []byte(nil)
	for ctx.Err() == nil {
		if pace != nil {
			select {
			case <-pace:
			case <-ctx.Done():
				return nil
			}
		}
		out = out[:0]
		for range n {
			out = l.appendIncrement(out)
		}
		if _, err := nc.Write(out); err != nil {
			return err
		}
		for range n {
			line, err := in.ReadSlice('\n')
			if err != nil {
				return err
			}
			if line[0] != ':' {
				return fmt.Errorf("an increment is answered with %.100q", line)
			}
		}
		l.done.Add(int64(n))
	}
	return nil
}

func (l *load) appendIncrement(b []byte) []byte {
	id := newID()
	if l.twin != nil {
		id = l.twin(id)
	}
	k := int(binary.BigEndian.Uint16(id[10:])) % counters // twins have the same counter
	return fmt.Appendf(b, "*4\r\n$7\r\nCINCRBY\r\n$13\r\ncounter:%05d\r\n$36\r\n%s\r\n$1\r\n1\r\n", k, id)
}

// newID is a UUIDv7. The package's own is slower than the servers.
func newID() (id uuid.UUID) {
	binary.BigEndian.PutUint64(id[:], uint64(time.Now().UnixMilli())<<16|0x7000|rand.Uint64N(1<<12))
	binary.BigEndian.PutUint64(id[8:], rand.Uint64()>>2|1<<63)
	return id
}
