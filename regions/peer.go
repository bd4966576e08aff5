package regions

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/fbfkv/fbfkv/resp"
	"github.com/fbfkv/fbfkv/store"
	"github.com/fbfkv/fbfkv/store/part"
)

// peer reads one other region, over one connection. One goroutine runs it.
type peer struct {
	opts       *Options
	region     part.Region
	first      uint16          // partition of the shard of it that is read
	address    string          // of the region
	ctx        context.Context // done when the peer is to stop
	cancel     context.CancelFunc
	done       chan struct{} // closed when nothing uses the store any more
	wake       chan struct{} // has room for one: look again, now
	acquainted *acquainted

	found func(*peer, []Shard) // is told of all shards of the region; nil: nobody is

	mu        sync.Mutex
	shard     *Shard   // nil: not known yet
	nodes     []string // addresses of its nodes; none: that of the region is the only one
	all       []Shard  // of the region, as it was told last
	at        string   // where it is read, or was
	next      int      // which of them is tried next
	elsewhere bool     // it is tried now
	status    Status   // but for what Status computes
	interrupt func()   // ends the session at hand; nil: there is none
	readings  []*reading
	began     int64          // own clock, unix ms
	linkErr   error          // of the last session; nil: it goes well
	noted     string         // of which failure the log tells; "": all is well
	tables    store.TableSet // of the region, as it has told them; nil: it has not
	nextState int            // the reading that the next request for states begins with
	// refused: it waits long. excused: since the last answer a refusal was not waited for, as the
	// region has asked this one at knownAt.
	refused, excused bool
	knownAt          time.Time
}

// reading is what one partition here reads of the region.
type reading struct {
	store.PullRange
	taken, newest uint64
	fresh         int64         // until when all is known to be taken: own clock, unix ms
	err           error         // why it waits
	fails         int           // in a row
	gaps          int           // in a row, at as many nodes
	state         *stateReading // it takes the state; nil: the log
	until         time.Time
}

func newPeer(ctx context.Context, o *Options, r part.Region, first uint16, address string, paused bool,
	known *acquainted) *peer {
	p := &peer{opts: o, region: r, first: first, address: address, acquainted: known,
		done: make(chan struct{}), wake: make(chan struct{}, 1), began: o.now()}
	p.status.Region, p.status.Address, p.status.Paused = r, address, paused
	p.ctx, p.cancel = context.WithCancel(ctx)
	return p
}

func (p *peer) stop() {
	p.cancel()
	<-p.done
}

func (p *peer) pause() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.status.Paused = true; p.interrupt != nil {
		p.interrupt()
	}
}

func (p *peer) resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.status.Paused = false
	for _, r := range p.readings {
		r.until = time.Time{}
	}
	// A network that drops packets tells nobody, and when it is mended what was sent is sent again late. So
	// an operator who says that it is mended gets another connection; where readings are is known without it.
	if p.interrupt != nil {
		p.interrupt() // which begins another session at once
		return
	}
	p.wakeUp()
}

// run reads until the peer is to stop.
func (p *peer) run() {
	defer close(p.done)
	if a := p.opts.Store.Asking(); a != nil { // until then a pull would only wait
		select {
		case <-a.Done():
		case <-p.ctx.Done():
		}
	}
	fails := 0
	for p.ctx.Err() == nil {
		ctx, end, ok := p.begin()
		if !ok {
			p.sleep(-1)
			continue
		}
		pulls, began := p.status.Pulls, time.Now()
		err := p.session(ctx)
		interrupted := ctx.Err() != nil
		end()
		if interrupted { // by pause, resume or the end
			fails = 0
			continue
		}
		// A reading waits, or it is refused soon; or it is at most as often as there are nodes.
		if errors.Is(err, errAfresh) || errors.Is(err, errElsewhere) {
			continue
		}
		if p.status.Pulls > pulls {
			fails = 0
		}
		p.failed(err)
		delay := p.opts.delay(fails)
		if errors.Is(err, ErrRefused) && !p.amongNodes() && p.waitsLong(began) {
			delay = p.opts.delay(64)
		}
		fails++
		p.sleep(delay)
	}
}

// waitsLong reports whether to wait as after a refusal. One that has just become a member is not
// known to all others yet; who knows it asks it: then this peer asks at once, but only once, since
// it may be refused for other reasons.
func (p *peer) waitsLong(began time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.knownAt.After(began) && !p.excused {
		p.excused = true
		return false
	}
	p.refused = true
	return true
}

// askedUs notes that the region has asked this one.
func (p *peer) askedUs() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.knownAt = time.Now(); p.refused && !p.excused {
		p.excused = true
		p.wakeUp()
	}
}

// wakeUp ends a sleep or a rest. The lock is held.
func (p *peer) wakeUp() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// begin returns the context of a session, unless the peer is paused.
func (p *peer) begin() (ctx context.Context, end func(), ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.status.Paused {
		return nil, nil, false
	}
	p.refused = false
	ctx, p.interrupt = context.WithCancel(p.ctx)
	return ctx, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.interrupt()
		p.interrupt, p.status.Connected = nil, false
	}, true
}

// sleep waits, for ever if d is negative; resume and stop end it.
func (p *peer) sleep(d time.Duration) {
	var timer <-chan time.Time
	if d >= 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		timer = t.C
	}
	select {
	case <-p.ctx.Done():
	case <-p.wake:
	case <-timer:
	}
}

// delay is how long to wait after failures in a row.
func (o *Options) delay(fails int) time.Duration {
	d := o.FirstRetry
	for ; fails > 0 && d < o.LastRetry; fails-- {
		d *= 2
	}
	d = min(d, o.LastRetry)
	return d - time.Duration(rand.Int64N(int64(d/2)+1))
}

// failed notes why a session has ended. Only the first of failures that are alike is logged: a
// link that is down for hours is one line.
func (p *peer) failed(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.linkErr = err
	p.next++
	p.status.LastError, p.status.LastErrorAt = err.Error(), time.Now()
	noted := "link" // errors of the network have port numbers
	if errors.Is(err, ErrRefused) {
		noted = err.Error()
	}
	switch {
	case noted == p.noted || p.over():
	case errors.Is(err, errRemovedThere):
		p.opts.Logger.Info("another region says that it was removed", "region", p.name(), "address", p.address)
	case errors.Is(err, errNoRegionThere) && p.status.LastAnswer.IsZero(): // it is about to join
		p.opts.Logger.Info("another region has not joined yet", "region", p.name(), "address", p.address)
	default:
		p.opts.Logger.Warn("another region cannot be read", "region", p.name(), "address", p.address, "error",
			err)
	}
	p.noted = noted
}

// over reports whether nobody must read the region any more, as it was removed, or the own one: then no
// failure is worth a line of the log.
func (p *peer) over() bool {
	set, _ := p.opts.Store.Regions()
	m, ok := set.Member(p.region)
	return set.Removed || !ok || m.Gone
}

// nameOf is what a region is called in the log.
func (o *Options) nameOf(r part.Region) string {
	set, _ := o.Store.Regions()
	m, _ := set.Member(r)
	return fmt.Sprintf("%s (%d)", m.Name, r)
}

func (p *peer) name() string { return p.opts.nameOf(p.region) }

// link is a connection to a source.
type link struct {
	net.Conn
	answerReader
	w      resp.Writer
	learnt time.Time     // when its shards were remembered; zero: not yet
	asked  time.Time     // for tables; zero: not yet
	rtt    time.Duration // about
}

// connect dials the address of the region and logs in.
func (p *peer) connect(ctx context.Context) (*link, error) { return p.connectTo(ctx, p.address) }

func (p *peer) connectTo(ctx context.Context, address string) (*link, error) {
	// A dead link sends its lost bytes again more and more seldom: a new connection is made sooner.
	dialing, cancel := context.WithTimeout(ctx, p.opts.Timeout/2)
	defer cancel()
	conn, err := p.opts.Dial(dialing, address)
	if err != nil {
		return nil, err
	}
	l := &link{Conn: conn, answerReader: answerReader{r: bufio.NewReaderSize(conn, 64<<10)}}
	user, password := p.opts.Login()
	if password == "" {
		return l, nil
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	if user == "" {
		l.w.BulkStrings([]string{"AUTH", password})
	} else {
		l.w.BulkStrings([]string{"AUTH", user, password})
	}
	if err = l.send(p.opts.Timeout); err == nil {
		err = l.status()
	}
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("logging in: %w", err)
	}
	return l, nil
}

// send writes what was appended, and gives the answer a time.
func (l *link) send(answer time.Duration) error {
	if err := l.SetDeadline(time.Now().Add(answer)); err != nil {
		return err
	}
	_, err := l.Write(l.w.Bytes())
	l.w.Reset()
	return err
}

// errChanged ends a session that goes on from the present knowledge.
var errChanged = errors.New("what is known of the region has changed")

// session reads over one connection until something fails or ctx is done.
func (p *peer) session(ctx context.Context) error {
	member, _, err := p.member()
	if err != nil {
		return err
	}
	l, err := p.enter(ctx, &member)
	if err != nil {
		return err
	}
	defer l.Close()
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	if err := p.plan(); err != nil {
		return err
	}
	a := &ahead{link: l, m: member, every: min(max(l.rtt/inRoundTrip, leastEvery), mostEvery)}
	for ctx.Err() == nil {
		now, version, err := p.member()
		if err != nil {
			return err
		}
		if now != member {
			return errChanged
		}
		if a.n == 0 {
			err = p.ask(ctx, a, version)
		}
		if err == nil && a.n > 0 {
			err = p.hear(ctx, a, version)
		}
		if err != nil {
			return err
		}
	}
	return ctx.Err()
}

// rest waits until a reading may be asked again.
func (p *peer) rest(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-p.wake:
	case <-t.C:
	}
}
