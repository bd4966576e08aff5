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
	opts    *Options
	region  part.Region
	address string
	ctx     context.Context // done when the peer is to stop
	cancel  context.CancelFunc
	done    chan struct{} // closed when nothing uses the store any more
	wake    chan struct{} // has room for one: look again, now
	known   *acquainted

	mu        sync.Mutex
	status    Status // but for what Status computes
	interrupt func() // ends the session at hand; nil: there is none
	readings  []*reading
	began     int64  // own clock, unix ms
	linkErr   error  // of the last session; nil: it goes well
	noted     string // of which failure the log tells; "": all is well
	next      int    // the reading that the next request begins with
	nextState int    // … and that for states
}

// reading is what one partition here reads of the region.
type reading struct {
	store.PullRange
	taken, newest uint64
	fresh         int64         // until when all is known to be taken: own clock, unix ms
	err           error         // why it waits
	fails         int           // in a row
	state         *stateReading // it takes the state; nil: the log
	until         time.Time
}

func newPeer(ctx context.Context, o *Options, r part.Region, address string, paused bool, known *acquainted) *peer {
	p := &peer{opts: o, region: r, address: address, known: known, done: make(chan struct{}), wake: make(chan struct{}, 1), began: o.now()}
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
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// run reads until the peer is to stop.
func (p *peer) run() {
	defer close(p.done)
	fails := 0
	for p.ctx.Err() == nil {
		ctx, end, ok := p.begin()
		if !ok {
			p.sleep(-1)
			continue
		}
		pulls := p.status.Pulls
		err := p.session(ctx)
		interrupted := ctx.Err() != nil
		end()
		if interrupted { // by pause, resume or the end
			fails = 0
			continue
		}
		if p.status.Pulls > pulls {
			fails = 0
		}
		p.failed(err)
		delay := p.opts.delay(fails)
		if errors.Is(err, ErrRefused) {
			delay = p.opts.delay(64)
		}
		fails++
		p.sleep(delay)
	}
}

// begin returns the context of a session, unless the peer is paused.
func (p *peer) begin() (ctx context.Context, end func(), ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.status.Paused {
		return nil, nil, false
	}
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
	p.status.LastError, p.status.LastErrorAt = err.Error(), time.Now()
	noted := "link" // errors of the network have port numbers
	if errors.Is(err, ErrRefused) {
		noted = err.Error()
	}
	if noted != p.noted {
		p.opts.Logger.Warn("another region cannot be read", "region", p.region, "address", p.address, "error", err)
	}
	p.noted = noted
}

// link is a connection to a source.
type link struct {
	net.Conn
	answerReader
	w resp.Writer
}

// connect dials and logs in.
func (p *peer) connect(ctx context.Context) (*link, error) {
	dialing, cancel := context.WithTimeout(ctx, p.opts.Timeout)
	defer cancel()
	conn, err := p.opts.Dial(dialing, p.address)
	if err != nil {
		return nil, err
	}
	l := &link{Conn: conn, answerReader: answerReader{r: bufio.NewReaderSize(conn, 64<<10)}}
	if p.opts.Password == "" {
		return l, nil
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	if p.opts.User == "" {
		l.w.BulkStrings([]string{"AUTH", p.opts.Password})
	} else {
		l.w.BulkStrings([]string{"AUTH", p.opts.User, p.opts.Password})
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

// session reads over one connection until something fails or ctx is done.
func (p *peer) session(ctx context.Context) error {
	member, err := p.member()
	if err != nil {
		return err
	}
	if err := p.plan(); err != nil {
		return err
	}
	l, err := p.connect(ctx)
	if err != nil {
		return err
	}
	defer l.Close()
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	for ctx.Err() == nil {
		now, err := p.member()
		if err != nil {
			return err
		}
		if now != member {
			return errors.New("what is known of the region has changed")
		}
		asked, err := p.readStates(l, member)
		if err != nil {
			return err
		}
		q, wait, err := p.request(member)
		if err != nil {
			return err
		}
		if len(q.Ranges) == 0 {
			if !asked {
				p.rest(ctx, wait)
			}
			continue
		}
		q.write(&l.w)
		if err := l.send(q.Block + p.opts.Timeout); err != nil {
			return err
		}
		before, sent := l.bytes, time.Now()
		clock, answers, err := l.read(q)
		if err != nil {
			return err
		}
		p.answered(q, clock, answers, l.bytes-before)
		if len(answers) == 0 && time.Since(sent) < q.Block/2 {
			p.rest(ctx, p.opts.delay(0)) // it does not wait: then we do
		}
		if !p.take(q, answers) {
			return fmt.Errorf("%w: no range that follows", ErrAnswer)
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
