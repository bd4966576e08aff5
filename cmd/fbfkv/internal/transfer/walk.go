// Package transfer is the commands `fbfkv import` and `fbfkv export`: they copy
// counters, with their expiries, from a Redis into fbfkv, and from fbfkv to where one
// wants them.
//
// Both walk a server's keys in three stages that run at the same time, each a page
// ahead of the next: SCAN finds keys, a pipeline of GETRANGE and of PTTL reads them,
// and the command writes them, with a pipeline of SET or to standard output.
package transfer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/fbfkv/fbfkv/cmd/fbfkv/internal/bar"
	"github.com/fbfkv/fbfkv/cmd/fbfkv/internal/connect"
	"github.com/fbfkv/fbfkv/cmd/fbfkv/internal/info"
)

const (
	// pageKeys is about how many keys one pipeline holds: enough to make the network's
	// and the disk's delay small beside the work.
	pageKeys = 2000
	// replyTimeout is how long a server may take to answer a pipeline.
	replyTimeout = 30 * time.Second
	// longest is the most bytes of a counter: those of -9223372036.854775808, in a table with
	// SCALE 9. One byte more is asked for: longer values need not come whole.
	longest = 21
	// emptyScans is how many answers to SCAN in a row may hold no key, beside one for each key that the
	// server says it has; spareKeys is how many keys more than four times that number there may be.
	emptyScans = 1 << 14
	spareKeys  = 1 << 20
)

// record is a key as the server described it.
type record struct {
	key, value string
	err        error // instead of the value: WRONGTYPE
	expiry     int64 // as the expiry command answers: in ms, -1: none, -2: no such key
}

// counter returns the reason why the value is no counter's, neither an integer nor a decimal.
// How many decimals a key may have its server knows.
func (r *record) counter() (why string) {
	if r.err != nil {
		return "not a string"
	}
	whole, decimals, point := strings.Cut(r.value, ".")
	n, err := strconv.ParseInt(whole, 10, 64)
	switch written := strconv.FormatInt(n, 10); {
	case err != nil, len(r.value) > longest, written != whole && !(point && whole == "-0"):
		return fmt.Sprintf("%q is no signed 64-bit integer", r.value)
	case point && (decimals == "" || strings.Trim(decimals, "0123456789") != ""):
		return fmt.Sprintf("%q is no decimal", r.value)
	}
	return ""
}

// page is some records, and when the server was asked for them.
type page struct {
	records []record
	asked   time.Time
}

// walk is a way through a server's keys.
type walk struct {
	client *connect.Client
	match  string // a pattern as SCAN's
	expiry string // the command that tells expiries: PTTL or PEXPIRETIME

	seen, total int64 // keys handled so far, and how many the server had at the beginning
	progress    *bar.Bar
	stage       string
}

// each calls use with every page, until all keys were there, something failed, or the
// user interrupted: use is then not called again. A key that exists all the time is
// there once or, as SCAN does, several times.
func (w *walk) each(stderr io.Writer, use func(page) error) error {
	signalled, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(signalled, stop) // the second signal ends the process
	ctx, fail := context.WithCancelCause(signalled)
	defer fail(nil)
	var err error
	if w.total, err = w.client.Do(ctx, "DBSIZE").Int(); err != nil {
		return fmt.Errorf("%s: %w", w.client.Addr(), err)
	}
	w.progress = bar.New(stderr)
	defer w.progress.Clear()
	keys, pages := make(chan []string, 1), make(chan page, 1)
	go func() {
		defer close(keys)
		w.scan(ctx, fail, keys)
	}()
	go func() {
		defer close(pages)
		w.read(ctx, fail, keys, pages)
	}()
	for {
		select {
		case p, more := <-pages:
			switch {
			case signalled.Err() != nil:
				return errInterrupted
			case !more:
				return context.Cause(ctx)
			}
			if err := use(p); err != nil {
				return err
			}
			w.seen += int64(len(p.records))
			w.progress.Set(w.stage, false, w.seen, max(w.seen, w.total))
		case <-signalled.Done(): // whether the server answers or not
			return errInterrupted
		}
	}
}

// scan sends pages of keys.
func (w *walk) scan(ctx context.Context, fail func(error), pages chan<- []string) {
	var page []string
	size, found, empty := w.total, int64(0), int64(0)
	for cursor := "0"; ; {
		keys, next, err := scanned(w.client.Do(ctx, "SCAN", cursor, "MATCH", w.match, "COUNT", pageKeys))
		if err != nil {
			fail(fmt.Errorf("SCAN at %s: %w", w.client.Addr(), err))
			return
		}
		page = append(page, keys...)
		if found += int64(len(keys)); len(keys) > 0 {
			empty = 0
		} else {
			empty++
		}
		if found > 4*size+spareKeys { // clients may have added many
			if size, err = w.client.Do(ctx, "DBSIZE").Int(); err != nil {
				fail(fmt.Errorf("%s: %w", w.client.Addr(), err))
				return
			}
		}
		if next != "0" && (next == cursor || empty > emptyScans+size || found > 4*size+spareKeys) {
			fail(fmt.Errorf("SCAN at %s does not come to an end: the cursor %s after %d keys, of which "+
				"the server says it has %d",
				w.client.Addr(), next, found, size))
			return
		}
		for len(page) >= pageKeys || next == "0" && len(page) > 0 { // one answer may hold many pages
			n := min(len(page), 2*pageKeys)
			select {
			case pages <- page[:n:n]:
			case <-ctx.Done():
				return
			}
			page = page[n:]
		}
		if cursor = next; cursor == "0" {
			return
		}
	}
}

// scanned reads the answer to SCAN.
func scanned(r connect.Reply) (keys []string, next string, err error) {
	parts, err := r.List()
	if err == nil && len(parts) != 2 {
		err = errors.New("the answer has an unexpected form")
	}
	if err != nil {
		return nil, "", err
	}
	if next, err = parts[0].Text(); err == nil {
		keys, err = parts[1].Texts()
	}
	return keys, next, err
}

// read sends the records of pages of keys.
func (w *walk) read(ctx context.Context, fail func(error), pages <-chan []string, out chan<- page) {
	for keys := range pages {
		p := page{records: make([]record, len(keys)), asked: time.Now()}
		commands := make([][]any, 0, 2*len(keys))
		for _, k := range keys {
			commands = append(commands, []any{"GETRANGE", k, 0, longest}, []any{w.expiry, k})
		}
		replies, err := w.client.Pipeline(ctx, commands)
		if err != nil {
			fail(fmt.Errorf("reading from %s: %w", w.client.Addr(), err))
			return
		}
		for i, k := range keys {
			r := &p.records[i]
			r.key = k
			if r.value, r.err = replies[2*i].Text(); r.err != nil &&
				!strings.HasPrefix(r.err.Error(), "WRONGTYPE ") {
				fail(fmt.Errorf("reading %q from %s: %w", k, w.client.Addr(), r.err))
				return
			}
			if r.expiry, err = replies[2*i+1].Int(); err != nil {
				fail(fmt.Errorf("%s %q at %s: %w", w.expiry, k, w.client.Addr(), err))
				return
			}
		}
		select {
		case out <- p:
		case <-ctx.Done():
			return
		}
	}
}

// describe returns the fields of INFO server, none if the user may not ask for it.
func describe(client *connect.Client) (info.Info, error) {
	text, err := client.Do(context.Background(), "INFO", "server").Text()
	if err != nil && strings.HasPrefix(err.Error(), "NOPERM ") {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", client.Addr(), err)
	}
	return info.Parse(text), nil
}

// errInterrupted says that the user, or the system, wants the command to end.
var errInterrupted = errors.New("interrupted")

// The exit statuses beside 0 and 1.
const (
	exitSkipped     = 2   // all was done, and some keys are no counters
	exitInterrupted = 130 // as a shell has it
)

// exit is an error with an exit status.
type exit struct {
	error
	status int
}

// ExitStatus returns the status with which the program ends.
func (e exit) ExitStatus() int { return e.status }

// Unwrap returns the error.
func (e exit) Unwrap() error { return e.error }

// ended returns the error of a command that walked: err with how far it got, or that it
// skipped some keys.
func (w *walk) ended(err error, skipped int64, advice string) error {
	switch {
	case err != nil:
		e := exit{fmt.Errorf("%w after %d of about %d keys; %s", err, w.seen, max(w.seen, w.total), advice),
			1}
		if errors.Is(err, errInterrupted) {
			e.status = exitInterrupted
		}
		return e
	case skipped > 0:
		return exit{fmt.Errorf("skipped keys: %d", skipped), exitSkipped}
	}
	return nil
}
