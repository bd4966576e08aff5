package regions

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/internal/testwait"
	"github.com/fbfkv/fbfkv/resp"
	"github.com/fbfkv/fbfkv/store"
	"github.com/fbfkv/fbfkv/store/part"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// eventually waits for a condition that other goroutines bring about.
var eventually = testwait.Until

// region is a real store, with a server that answers REGION.PULL on a socket.
type region struct {
	t          testing.TB
	n          int
	partitions int
	fs         vfs.FS
	skew       atomic.Int64 // ms
	logFile    int64
	backlog    int64
	ask        time.Duration
	password   string
	listen     func() (net.Listener, error)

	mu     sync.RWMutex // held while the store is exchanged
	s      *store.Store
	mesh   *Mesh
	node   *Node
	log    bytes.Buffer // of the mesh
	logMu  sync.Mutex
	server *testServer
}

// Write is for the log.
func (r *region) Write(b []byte) (int, error) {
	r.logMu.Lock()
	defer r.logMu.Unlock()
	return r.log.Write(b)
}

// logged counts lines of the log.
func (r *region) logged(text string) int {
	r.logMu.Lock()
	defer r.logMu.Unlock()
	return strings.Count(r.log.String(), text)
}

func (r *region) clock() (wall, running int64) {
	now := time.Now().UnixMilli()
	return now + r.skew.Load(), now
}

// ownHost is an address of the loopback interface that other processes of tests do not use: they would
// take the port of a region that is to come back at it.
func ownHost() string { return fmt.Sprintf("127.%d.%d.9", os.Getpid()>>8&0xff, os.Getpid()&0xff) }

func (r *region) open() {
	s, err := store.Open(store.Options{
		Dir: "data", FS: r.fs, Partitions: r.partitions, Seed: [16]byte{byte(r.n + 1)}, SnapshotInterval: -1,
		MinFreeDisk: -1,
		LogFileSize: r.logFile, RegionBacklog: r.backlog, RegionAsk: r.ask, Clock: r.clock,
		Fatal: func(err error) { r.t.Error(err) },
	})
	must(r.t, err)
	r.s = s
	listen := r.listen
	if listen == nil {
		listen = func() (net.Listener, error) { return net.Listen("tcp", ownHost()+":0") }
	}
	l, err := listen()
	must(r.t, err)
	r.server = &testServer{listener: l,
		source: Source{Store: s, Clock: r.clock}, password: r.password, conns: make(map[net.Conn]bool)}
	r.server.ctx, r.server.cancel = context.WithCancel(context.Background())
	r.server.wg.Go(r.server.accept)
}

func (r *region) close() {
	if r.mesh != nil {
		must(r.t, r.mesh.Close())
	}
	if r.node != nil {
		must(r.t, r.node.Close())
	}
	r.server.close()
	must(r.t, r.s.CloseNow())
}

func (r *region) do(op store.Op) store.Op {
	r.mu.RLock()
	defer r.mu.RUnlock()
	var b store.Batch
	o := b.Add(op.Kind)
	*o = op
	r.s.Execute(&b)
	return b.Ops[0]
}

func (r *region) once(key, id string, delta int64) store.Op {
	return r.do(store.Op{Kind: store.CIncrBy, Key: []byte(key), ID: []byte(id), Delta: delta})
}

func (r *region) value(key string) int64 {
	return r.do(store.Op{Kind: store.Get, Key: []byte(key)}).Value
}

// of returns how the reading of a region goes.
func (r *region) of(n int) Status {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, s := range r.mesh.Status() {
		if s.Region == part.Region(n) {
			return s
		}
	}
	return Status{}
}

func (r *region) options(peers map[part.Region]string) Options {
	return Options{
		Store: r.s, Peers: peers, Logger: slog.New(slog.NewTextHandler(r, nil)), Clock: r.clock,
		Block:      time.Minute,
		FirstRetry: time.Millisecond, LastRetry: 20 * time.Millisecond, doubtPeriod: time.Millisecond,
		sure: true,
		// it looks at others only when a test says so
		after: func(time.Duration) <-chan time.Time { return nil },
	}
}

// pause ends the reading of a region by a node, and waits until no answer of it can be taken any more.
func pause(t testing.TB, n *Node, name string) {
	t.Helper()
	must(t, n.Pause(name))
	m := n.Mesh()
	eventually(t, "the session has ended", func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		for _, p := range m.peers {
			p.mu.Lock()
			reads := p.status.Paused && p.interrupt != nil
			p.mu.Unlock()
			if reads {
				return false
			}
		}
		return true
	})
}

// newRegions opens regions that know of each other, with numbers of partitions. Nobody reads yet.
func newRegions(t testing.TB, partitions ...int) []*region {
	all := newServers(t, partitions...)
	for i, r := range all {
		must(t, r.s.SetRegions(setOf(all, i)))
	}
	return all
}

// newServers opens servers that are no regions yet.
func newServers(t testing.TB, partitions ...int) []*region {
	var all []*region
	for i, n := range partitions {
		r := &region{t: t, n: i, partitions: n, fs: vfs.NewMem()}
		r.open()
		t.Cleanup(func() { r.close() })
		mode := store.Exact
		must(t, r.s.AlterTable(store.DefaultTable, store.TableChange{Mode: &mode}))
		all = append(all, r)
	}
	return all
}

func setOf(all []*region, self int) store.RegionSet {
	set := store.RegionSet{Group: 77, Self: part.Region(self)}
	for i, r := range all {
		set.Members = append(set.Members, store.RegionMember{
			Region: part.Region(i), Name: fmt.Sprint("region", i), Partitions: r.partitions,
			Incarnation: r.s.Meta().Incarnation,
		})
	}
	return set
}

// start lets a region read others, with the options of tests, which change may edit.
func (r *region) start(peers map[part.Region]string, change func(*Options)) {
	o := r.options(peers)
	if change != nil {
		change(&o)
	}
	m, err := Start(o)
	must(r.t, err)
	r.mesh = m
}

// testServer is as much of a server as a source needs.
type testServer struct {
	listener net.Listener
	source   Source
	node     atomic.Pointer[Node] // answers in the place of source; nil: none
	password string
	pulls    atomic.Int64
	old      atomic.Bool                                              // it does not know REGION.PULL TABLES
	change   atomic.Pointer[func(args [][]byte, reply []byte) []byte] // nil: replies stay as they are
	ctx      context.Context
	cancel   func()
	wg       sync.WaitGroup
	mu       sync.Mutex
	conns    map[net.Conn]bool
}

func (s *testServer) address() string { return s.listener.Addr().String() }

func (s *testServer) accept() {
	for {
		c, err := s.listener.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		s.conns[c] = true
		if s.ctx.Err() != nil {
			c.Close()
		}
		s.mu.Unlock()
		s.wg.Go(func() { s.serve(c) })
	}
}

func (s *testServer) serve(c net.Conn) {
	defer c.Close()
	rd, w := resp.NewReader(c, resp.DefaultLimits), &resp.Writer{}
	known, told := s.password == "", new(Told)
	for {
		if _, err := rd.Fill(); err != nil {
			return
		}
		for {
			args, ok, err := rd.Next()
			if err != nil {
				return
			}
			if !ok {
				break
			}
			switch name := string(args[0]); {
			case name == "AUTH" && string(args[len(args)-1]) == s.password:
				known = true
				w.Status("OK")
			case name == "AUTH":
				w.Error("WRONGPASS invalid username-password pair or user is disabled.")
			case !known:
				w.Error("NOAUTH Authentication required.")
			case name == Command:
				s.pulls.Add(1)
				if s.old.Load() && isWord(args[1:], wordTables) {
					args[1] = []byte("WHAT")
				}
				if n := s.node.Load(); n != nil {
					n.Pull(s.ctx, told, args[1:], w)
				} else {
					s.source.Pull(s.ctx, told, args[1:], w)
				}
				if change := s.change.Load(); change != nil {
					reply := bytes.Clone((*change)(args[1:], w.Bytes()))
					w.Reset()
					w.Raw(reply)
				}
			default:
				w.Error("ERR unknown command")
			}
			if _, err := c.Write(w.Bytes()); err != nil {
				return
			}
			w.Reset()
		}
	}
}

func (s *testServer) close() {
	s.cancel()
	s.listener.Close()
	s.mu.Lock()
	for c := range s.conns {
		c.Close()
	}
	s.mu.Unlock()
	s.wg.Wait()
}

// proxy is a link that can be cut, or drop all bytes without a word.
type proxy struct {
	listener net.Listener
	target   atomic.Pointer[string]
	dropping atomic.Bool
	dropped  atomic.Int64 // bytes
	wg       sync.WaitGroup
	mu       sync.Mutex
	down     bool
	conns    map[net.Conn]bool
}

func newProxy(t testing.TB, target string) *proxy {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	p := &proxy{listener: l, conns: make(map[net.Conn]bool)}
	p.target.Store(&target)
	p.wg.Go(p.accept)
	t.Cleanup(func() {
		l.Close()
		p.cut()
		p.wg.Wait()
	})
	return p
}

func (p *proxy) address() string { return p.listener.Addr().String() }

func (p *proxy) accept() {
	for {
		c, err := p.listener.Accept()
		if err != nil {
			return
		}
		to, err := net.Dial("tcp", *p.target.Load())
		if err != nil {
			c.Close()
			continue
		}
		p.mu.Lock()
		if p.conns[c], p.conns[to] = true, true; p.down {
			c.Close()
			to.Close()
		}
		p.mu.Unlock()
		p.wg.Go(func() { p.copy(c, to) })
		p.wg.Go(func() { p.copy(to, c) })
	}
}

func (p *proxy) copy(dst, src net.Conn) {
	defer dst.Close()
	defer src.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := src.Read(buf)
		if err != nil {
			return
		}
		if p.dropping.Load() {
			p.dropped.Add(int64(n))
			continue
		}
		if _, err := dst.Write(buf[:n]); err != nil {
			return
		}
	}
}

// cut breaks all connections, and new ones, until heal.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = true
	for c := range p.conns {
		c.Close()
	}
	clear(p.conns)
}

func (p *proxy) heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = false
	p.dropping.Store(false)
}

// fakeSource answers each request with what reply says.
func fakeSource(t testing.TB, reply func(args [][]byte) string) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			context.AfterFunc(ctx, func() { c.Close() })
			wg.Go(func() {
				defer c.Close()
				rd := resp.NewReader(c, resp.DefaultLimits)
				for {
					if _, err := rd.Fill(); err != nil {
						return
					}
					for args, ok, err := rd.Next(); ok && err == nil; args, ok, err = rd.Next() {
						answer := "$2\r\n[]\r\n" // it has all partitions
						switch string(args[1]) {
						case wordShards:
						case wordPositions:
							answer = "$1\r\n\x00\r\n"
						case wordTables: // as one says that does not know the word
							answer = "-" + string(errArguments) + "\r\n"
						default:
							answer = reply(args)
						}
						if _, err := io.WriteString(c, answer); err != nil && !errors.Is(err, net.ErrClosed) {
							return
						}
					}
				}
			})
		}
	})
	t.Cleanup(func() {
		cancel()
		l.Close()
		wg.Wait()
	})
	return l.Addr().String()
}
