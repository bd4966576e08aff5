// Package stream is the command `fbfkv stream`: it feeds lines of standard input, or the
// entries of a Redis Stream, to counters, a Bloom filter or a count-min sketch, and asks it for them.
//
// Records go out in batches, by number and by time, so that an endless stream is counted
// as it comes. A batch may be sent again, after a broken connection or by the next run, and
// every line still counts once (count.go and train.go say why).
package stream

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/fbfkv/fbfkv/cmd/fbfkv/internal/bar"
	"github.com/fbfkv/fbfkv/cmd/fbfkv/internal/connect"
)

const help = `Feeds a stream to counters, a Bloom filter or a count-min sketch of a running fbfkv server, or queries it.
A record is a line of standard input. Standard output has the results only.

count counts every record in a counter (fbfkv stream count --help). train adds every record to the
filter, or counts it in the sketch, which must exist. query prints the lines that are in the filter,
or the item and its estimate for each line. dedup prints a line the first time only. Of these three
the item is the whole line, or the part that --field, --csv or --json names.

` + common

const countHelp = `Counts every record of a stream in a counter, once, with CINCRBY. Fields of a record are the words of a
line, {1}, {2} and so on, or the names in a JSON object, {page} or {user.id}. With --csv they are columns,
with --header named ones; with --combined the fields of an access log. {line} is the whole record.

The operation id is a field (--id), what is in front of a tab (--id-first, as from kcat -f '%t/%p/%o\t%s\n'),
the entry's id in a Redis Stream, or with --source the number of the line. If none is given, a second run
counts all again. --time names the event's time; {month}, {day}, {hour} and {minute} are pieces of it in
UTC. Where the record brings its id, it is the time of the operation, too: an event that is older than the
table's WINDOW is refused as STALE, as it may have been counted. So is a line that an interrupted run may have
sent, if WINDOW has passed since. --dead-letter keeps such lines, and others of at most 1 MiB that cannot be
counted; an entry of a stream with its id and a tab in front. At the end those that lead are shown, if the
counters' table has TOP.

` + common

const common = `With --source NAME the position is committed: after an interruption, run it again with the same input
and the same name, and every line counts once. It recognises another input under that name by its
first line and its last counted one, and refuses it.

With --redis, --stream and --group the records are the entries of a Redis Stream. The value of one is
the line; if it has several, the line is a JSON object of them. They are acknowledged once they are
counted. Their ids are opids: an entry that is delivered again within the table's WINDOW counts once.

Any node of a cluster leads to all of its shards.

The exit status is 0 if all was done, 2 if some lines lacked a field, had more than 1 MiB or could not be counted,
otherwise 1. Set the password in the environment variable ` + connect.PasswordVariable + `.`

const (
	// batchLines and batchTime are when a batch is full.
	batchLines = 512
	batchTime  = 50 * time.Millisecond
	// replyTimeout is how long the server may take for a batch, and patience for how long a
	// batch is sent again and again.
	replyTimeout = 30 * time.Second
	patience     = 60 * time.Second
	again        = 100 * time.Millisecond
	// reported is how many lines that are too long are named.
	reported = 10
)

// run is one run of a subcommand.
type run struct {
	input
	bloom, cms, fbf string // keys
	source          string
	invert          bool
	addr            string
	login           connect.Flags

	client  *connect.Cluster
	out     io.Writer
	runID   string   // for opids
	counter counting // of `stream count`

	waits   func(error)  // is told why the server is asked again, once for each time
	tells   func(string) // shows a line beside the progress
	handle  func(ctx context.Context, b *batch) error
	stage   string
	done    int64 // lines
	skipped int64 // lines without the field, or too long
	long    int64 // of these, those that are too long
}

// New returns the command.
func New() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "stream count|train|query|dedup [HOST:PORT] [flags]",
		Short: "feed a stream to a filter or sketch, or query it", Long: help, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return fmt.Errorf("%q is not count, train, query or dedup", args[0])
		},
	}
	cmd.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
		fmt.Fprintf(cmd.OutOrStdout(), "%s\n\n%s", cmd.Long, cmd.UsageString())
	})
	for _, sub := range []struct {
		use, short string
		prepare    func(r *run) error
		flags      func(r *run, cmd *cobra.Command)
	}{
		{"train", "add every record", (*run).train, func(r *run, cmd *cobra.Command) {
			cmd.Flags().StringVar(&r.cms, "cms", "", "the count-min sketch")
			cmd.Flags().StringVar(&r.source, "source", "", "the name of the input, under which the "+
				"position is kept")
		}},
		{"count", "count every record in a counter", (*run).count, func(r *run, cmd *cobra.Command) {
			r.counter.add(r, cmd)
		}},
		{"query", "print what is known of every record", (*run).query, func(r *run, cmd *cobra.Command) {
			cmd.Flags().StringVar(&r.cms, "cms", "", "the count-min sketch")
			cmd.Flags().BoolVar(&r.invert, "invert", false, "print the lines that are not in the filter")
		}},
		{"dedup", "print every line the first time", (*run).dedup, func(r *run, cmd *cobra.Command) {
			cmd.Flags().StringVar(&r.fbf, "fbf", "", "the forgetful Bloom filter, which remembers for its "+
				"window only")
		}},
	} {
		r := &run{input: input{full: batchLines}}
		c := &cobra.Command{
			Use: sub.use + " [HOST:PORT] [flags]", Short: sub.short, Args: cobra.MaximumNArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error {
				r.addr, _ = connect.Server(args, 0)
				r.out = cmd.OutOrStdout()
				return r.run(cmd.InOrStdin(), cmd.ErrOrStderr(), sub.prepare)
			},
		}
		if c.Long = help; sub.use == "count" {
			c.Long = countHelp
		} else {
			c.Flags().StringVar(&r.bloom, "bloom", "", "the Bloom filter")
			c.Flags().IntVar(&r.field, "field", 0, "the item is this word of the line, from 1; with --csv "+
				"this field")
			c.Flags().BoolVar(&r.csv, "csv", false, "lines are CSV; the item is the first field unless "+
				"--field says another")
			c.Flags().StringVar(&r.path, "json", "", "lines are JSON objects; the item is at this path, such "+
				"as user.id")
		}
		c.Flags().StringVar(&r.redis, "redis", "", "read a Redis Stream of the server redis://HOST:PORT")
		c.Flags().StringVar(&r.name, "stream", "", "the stream")
		c.Flags().StringVar(&r.group, "group", "", "the stream's consumer group")
		r.login.Add(c.Flags())
		sub.flags(r, c)
		cmd.AddCommand(c)
	}
	return cmd
}

func (r *run) run(in io.Reader, stderr io.Writer, prepare func(r *run) error) (err error) {
	if err := r.input.check(); err != nil {
		return err
	}
	if r.client, err = r.login.Cluster(r.addr, replyTimeout); err != nil {
		return err
	}
	defer r.client.Close()
	r.runID = rand.Text()
	progress := bar.New(stderr)
	r.tells = func(text string) {
		progress.Clear()
		fmt.Fprintln(stderr, text)
	}
	r.waits = func(err error) { r.tells(fmt.Sprintf("%s: %v; trying for %v", r.addr, err, patience)) }
	if err := prepare(r); err != nil {
		return err
	}
	signalled, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(signalled, stop) // the second signal ends the process
	ctx, cancel := context.WithCancel(signalled)
	defer cancel()
	began := time.Now()
	rate := func() float64 { return float64(r.done) / max(time.Since(began).Seconds(), 1e-3) }
	batches, failed := r.open(ctx, in)
	for b := range batches {
		// A batch under way is finished when the user interrupts.
		if err = r.handle(context.WithoutCancel(ctx), b); err == nil && b.done != nil {
			err = b.done()
		}
		if err != nil {
			break
		}
		r.done, r.skipped = r.done+b.n, r.skipped+b.skipped
		for _, n := range b.long {
			if r.long++; r.long <= reported {
				r.tells(fmt.Sprintf("line %d is longer than %d bytes: it is passed over", n, maxLine))
			}
		}
		progress.Set(fmt.Sprintf("%s, %.0f lines a second%s", r.stage, rate(), r.counter.behind()), r.size > 0,
			max(b.end, r.done), max(r.size, b.end, r.done))
	}
	cancel()
	progress.Clear()
	fmt.Fprintf(stderr, "%s: %d lines, %.0f a second%s\n", r.stage, r.done, rate(), r.counter.summary())
	switch {
	case err != nil:
		return fmt.Errorf("line %d: %w", r.committed.lines+r.done+1, err)
	case r.counter.parts != nil:
		fmt.Fprint(stderr, r.leaders(context.WithoutCancel(ctx)))
	}
	switch {
	case signalled.Err() != nil && r.redis == "":
		return errors.New("interrupted")
	case *failed != nil:
		return *failed
	case len(r.counter.refused) > 0:
		return partly(fmt.Sprintf("lines that were not counted: %d", r.skipped)) // too long ones among them
	case r.long > 0:
		return partly(fmt.Sprintf("lines that are too long: %d; without the field: %d", r.long,
			r.skipped-r.long))
	case r.skipped > 0:
		return partly(fmt.Sprintf("lines without the field: %d", r.skipped))
	}
	return nil
}

// open returns the batches of the input that was asked for.
func (r *run) open(ctx context.Context, in io.Reader) (<-chan *batch, *error) {
	if r.redis != "" {
		return r.entries(ctx)
	}
	return r.input.batches(ctx, in)
}

// partly is an error with exit status 2.
type partly string

// Error returns its text.
func (p partly) Error() string { return string(p) }

// ExitStatus returns the status with which the program ends.
func (p partly) ExitStatus() int { return 2 }

// try does something that may be done again, until the server has answered.
func (r *run) try(ctx context.Context, do func() error) error {
	began := time.Now()
	for tries := 0; ; tries++ {
		err := do()
		var final failure
		if err == nil || connect.IsReply(err) && !connect.IsTransient(err) || errors.As(err, &final) ||
			time.Since(began) > patience {
			return err
		}
		if tries == 0 {
			r.waits(err)
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(again):
		}
	}
}

// pipeline sends commands that may be sent again, and returns the replies; the first error
// among them is an error.
func (r *run) pipeline(ctx context.Context, commands [][]any) (replies []connect.Reply, err error) {
	err = r.try(ctx, func() (err error) {
		replies, err = r.once(ctx, commands)
		return err
	})
	return replies, err
}

// once is pipeline for commands that may not.
func (r *run) once(ctx context.Context, commands [][]any) (replies []connect.Reply, err error) {
	replies, err = r.client.Pipeline(ctx, commands)
	if err == nil {
		err = connect.FirstError(replies)
	}
	return replies, err
}

// key returns the one key that was given, if it holds what it should.
func (r *run) key(keys map[string]string) (key string, err error) {
	n := 0
	for k, kind := range keys {
		if k == "" {
			continue
		}
		n, key = n+1, k
		var got string
		err = r.try(context.Background(), func() (err error) {
			got, err = r.client.Do(context.Background(), "TYPE", k).Text()
			return err
		})
		switch {
		case err != nil:
			return "", err
		case got == "none":
			return "", fmt.Errorf("there is no key %q: create it first", k)
		case got != kind:
			return "", fmt.Errorf("key %q is of type %s, not %s", k, got, kind)
		}
	}
	if n != 1 {
		return "", errors.New("name one key: --bloom KEY, or another kind (--help lists them)")
	}
	return key, nil
}

const (
	typeBloom = "MBbloom--"
	typeCMS   = "CMSk-TYPE"
	typeFBF   = "fbf"
)
