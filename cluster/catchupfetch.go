package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/cluster/wire"
)

const (
	// askAgain is how long a node waits while the leader makes a cut.
	askAgain = 200 * time.Millisecond
	// A broken transfer is tried again after retryFirst, then each time after twice as long,
	// up to retryMost.
	retryFirst = 500 * time.Millisecond
	retryMost  = 30 * time.Second
)

// fetcher collects the files of another node.
type fetcher struct {
	o      fetcherOptions
	counts Transfers
	files  wire.Fetcher
}

// fetcherOptions configure a fetcher. All but the times are required.
type fetcherOptions struct {
	fs vfs.FS
	// dir is the directory that collects the files. The remains of a broken transfer there are
	// used.
	dir string
	// dial connects to the source of the files, the leader.
	dial func(ctx context.Context) (net.Conn, error)
	// last is the index and the term of the last entry of this node's log.
	last func() (index, term uint64)
	// examine says what is wrong with all files together.
	examine func(dir string, m *manifest) error
	// minFree is how many bytes are left free on the disk.
	minFree uint64
	log     *slog.Logger
	// retryFirst and askAgain: the constants, by default.
	retryFirst, askAgain time.Duration
}

func newFetcher(o fetcherOptions) *fetcher {
	if o.retryFirst == 0 {
		o.retryFirst = retryFirst
	}
	if o.askAgain == 0 {
		o.askAgain = askAgain
	}
	f := &fetcher{o: o}
	f.files = wire.Fetcher{FS: o.fs, Dir: o.dir, Subs: cutDirs, MinFree: o.minFree,
		Begin: func(offer *wire.Offer, there int64) {
			o.log.Info("this node fetches the leader's files", "cut", offer.ID, "files", len(offer.Files),
				"bytes", offer.Bytes(), "there", there)
		},
		Got: func(n int) { f.counts.bytes.Add(uint64(n)) }}
	return f
}

// fetch returns when all files of a cut are in the directory, durable and examined. It tries
// again until ctx is done. errNotBehind: the leader has what this node needs in its log.
func (f *fetcher) fetch(ctx context.Context) (*manifest, error) {
	f.counts.begun.Add(1)
	last := ""
	for pause := f.o.retryFirst; ; pause = min(2*pause, retryMost) {
		before := f.counts.bytes.Load()
		m, err := f.attempt(ctx)
		switch {
		case err == nil:
			f.counts.finished.Add(1)
			return m, nil
		case ctx.Err() != nil:
			f.counts.failed.Add(1)
			return nil, ctx.Err()
		case errors.Is(err, errNotBehind):
			f.counts.failed.Add(1)
			return nil, err
		}
		if f.counts.bytes.Load() > before {
			pause = f.o.retryFirst
		}
		if err.Error() != last { // once for each reason
			last = err.Error()
			f.o.log.Warn("the leader's files cannot be fetched now; this node tries again", "error", err)
		}
		t := time.NewTimer(pause)
		select {
		case <-ctx.Done():
		case <-t.C:
		}
		t.Stop()
	}
}

// attempt fetches what is missing over one connection.
func (f *fetcher) attempt(ctx context.Context) (*manifest, error) {
	conn, err := f.o.dial(ctx)
	if err != nil {
		return nil, err
	}
	c := wire.NewCaller(ctx, conn)
	defer c.Close()
	m, err := f.manifest(ctx, c)
	if err != nil {
		return nil, err
	}
	if err := f.files.Fetch(c, &m.Offer); err != nil {
		return nil, err
	}
	if err := f.o.examine(f.o.dir, m); err != nil {
		// Sums say that it is what the leader has: another cut may be better.
		return nil, errors.Join(fmt.Errorf("the fetched files cannot be used: %w", err),
			f.o.fs.RemoveAll(f.o.dir))
	}
	_, _ = c.Do(wire.Ask{Verb: verbDone, Ask: doneAsk{m.ID}, Within: answerTimeout}) // otherwise it finds out
	return m, nil
}

// manifest asks for a manifest until there is one.
func (f *fetcher) manifest(ctx context.Context, c *wire.Caller) (*manifest, error) {
	for {
		last, term := f.o.last()
		b, err := c.Do(wire.Ask{Verb: verbManifest, Ask: manifestAsk{last, term}, Limit: maxManifest,
			Within: answerTimeout})
		if err == nil {
			return decodeManifest(b)
		}
		if !errors.Is(err, errWait) {
			return nil, err
		}
		again := time.NewTimer(f.o.askAgain)
		select {
		case <-ctx.Done():
			again.Stop()
			return nil, ctx.Err()
		case <-again.C:
		}
	}
}
