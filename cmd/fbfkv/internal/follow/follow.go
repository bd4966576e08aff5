// Package follow is the command `fbfkv follow`: it writes the changes of counters of a running server, as they
// are committed, to standard output.
package follow

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/spf13/cobra"

	"github.com/fbfkv/fbfkv/cmd/fbfkv/internal/connect"
	"github.com/fbfkv/fbfkv/persistence/disk"
)

const help = `Writes each committed change of a counter to standard output, in order within each partition, and goes on until
it is stopped. A change has partition, sequence and index, which ascend within a partition; what happened:
add, set, drained, deleted, expired or flushed (all keys of the partition); key, opid, delta, the value
afterwards, and the time in Unix milliseconds. In a snapshot it is value, a counter as of the sequence, behind
one snapshot for each partition, before which nothing counts. Of a region it is what that shows: a change taken
from another one has that one's name, merged is one that no opid names, and takeback, with the negative delta,
takes back what another region applied first.

  ndjson   an object per line. A key or opid that is not UTF-8 becomes "key_base64" or "opid_base64"
  csv      the first line names the columns, unless it goes on from a cursor
  sql      statements for SQLite and PostgreSQL: each batch is one transaction, with the counters in
           counters(key, value) and the position in the one row of fbfkv_follow(cursor)

--from says where to begin: start, the oldest change that the server's log has; now; snapshot, with all
counters, and then the changes behind them; or a cursor. With
--cursor-file the cursor is kept there, behind what was written, and an existing file wins over --from. The log is
kept for the group, up to the server's setting follow-backlog; if this is not enough, the exit status is 1, and
--from snapshot begins again. Any node of a cluster leads to all of its shards, and the cursor is of all. When
a shard of a cluster is flushed, sql begins again with a snapshot. Set the password in the environment
variable ` + connect.PasswordVariable + `: there, other users cannot see it.`

const (
	count = 10_000
	block = 5 * time.Second
	// blockAll is for all shards together, if there are several.
	blockAll = 100 * time.Millisecond
	timeout  = block + 30*time.Second // for a reply
	again    = 200 * time.Millisecond
	// maxCursor is more than a cursor has, bytes.
	maxCursor = 128 << 10
)

// run is one run of the command.
type run struct {
	group, prefix, from, format, file string

	nodes
	out    *bufio.Writer
	stderr io.Writer
	write  writer
}

// New returns the command.
func New() *cobra.Command {
	r := run{nodes: nodes{clients: map[string]*connect.Client{}, failed: map[string]time.Time{},
		lost: map[string]bool{}}}
	cmd := &cobra.Command{
		Use: "follow [HOST:PORT] [--prefix P] [--from start|now|snapshot|CURSOR] [--format ndjson|csv|sql] " +
			"[--cursor-file F] [--group NAME] " + connect.Usage,
		Short: "write the changes of counters to standard output", Long: help, Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			r.out, r.stderr = bufio.NewWriterSize(cmd.OutOrStdout(), 256<<10), cmd.ErrOrStderr()
			if err := r.prepare(); err != nil {
				return err
			}
			r.first, _ = connect.Server(args, 0)
			if _, err = r.client(r.first); err != nil {
				return err
			}
			defer r.close()
			ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return r.follow(ctx)
		},
	}
	f := cmd.Flags()
	f.StringVar(&r.prefix, "prefix", "", "only counters whose keys begin with this")
	f.StringVar(&r.from, "from", "now", "where to begin: start, now, snapshot or a cursor")
	f.StringVar(&r.format, "format", "ndjson", "what to write: ndjson, csv or sql")
	f.StringVar(&r.file, "cursor-file", "", "the file in which the cursor is kept")
	f.StringVar(&r.group, "group", "follow", "the name for which the server keeps its log")
	r.login.Add(f)
	return cmd
}

// prepare checks the flags, and finds out where to begin.
func (r *run) prepare() error {
	make, ok := formats[r.format]
	switch {
	case !ok:
		return fmt.Errorf("--format is ndjson, csv or sql, not %q", r.format)
	case r.from == "":
		return errors.New("--from is start, now, snapshot or a cursor, and not empty")
	case r.file != "" && r.format == "sql":
		return errors.New("--cursor-file could run ahead of the database: begin with " +
			"--from \"$(…)\" from the table fbfkv_follow")
	}
	if r.file != "" {
		b, err := disk.ReadFile(vfs.Default, r.file, maxCursor)
		if err == nil {
			if r.from = strings.TrimSpace(string(b)); r.from == "" {
				err = fmt.Errorf("%s has no cursor: delete it, and choose with --from where to begin", r.file)
			}
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	r.write = make(r.out, slices.Contains([]string{"now", "start", "snapshot"}, r.from))
	return nil
}

// follow writes changes until it is stopped: those of one shard after the other.
func (r *run) follow(ctx context.Context) error {
	for i := 0; ctx.Err() == nil; i++ {
		if err := r.look(ctx); err != nil {
			if err := r.failedWith(ctx, []string{r.first}, err); err != nil {
				return err
			}
			continue
		}
		if err := r.keep(ctx, r.group); err != nil {
			return err
		}
		shard := r.shards[i%len(r.shards)]
		cursor, changes, err := r.ask(ctx, shard[0])
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			r.answered(shard)
		default:
			if err := r.failedWith(ctx, shard, err); err != nil {
				return err
			}
			continue
		}
		if r.format == "sql" && r.cluster && slices.ContainsFunc(changes, change.flushes) {
			r.from = "snapshot" // which of the counters in the database are the shard's is not known
			continue
		}
		if cursor == r.from {
			continue
		}
		if err = r.write(cursor, changes); err == nil {
			err = r.out.Flush()
		}
		if err == nil && r.file != "" {
			err = disk.WriteFile(vfs.Default, filepath.Dir(r.file), filepath.Base(r.file), []byte(cursor+"\n"))
		}
		if err != nil {
			return err
		}
		r.from = cursor
	}
	return nil
}

// failedWith waits a moment, and has another node of a shard asked, if that may be of use.
func (r *run) failedWith(ctx context.Context, shard []string, err error) error {
	lost := strings.HasPrefix(err.Error(), "LOST ")
	switch {
	case ctx.Err() != nil:
		return nil
	case lost && r.cluster && !r.allLost(shard):
	case connect.IsReply(err) && !connect.IsTransient(err) && !strings.HasPrefix(err.Error(), "MOVED "):
		if why := connect.Explain(shard[0], "CFOLLOW", err); why != nil {
			err = why
		} else if lost && r.file != "" {
			err = fmt.Errorf("%w: delete %s, and begin with --from snapshot", err, r.file)
		}
		return err
	}
	if r.next(shard) {
		fmt.Fprintf(r.stderr, "waiting for the server: %v\n", err)
	}
	select {
	case <-ctx.Done():
	case <-time.After(again / time.Duration(max(len(r.shards), 1))):
	}
	return nil
}

// ask asks for the next changes.
func (r *run) ask(ctx context.Context, addr string) (cursor string, changes []change, err error) {
	c, err := r.client(addr)
	if err != nil {
		return "", nil, err
	}
	reply, err := c.Do(ctx, "CFOLLOW", r.group, r.from, "COUNT", count, "BLOCK", r.block().Milliseconds(),
		"PREFIX", r.prefix).List()
	if err != nil {
		return "", nil, err
	}
	if len(reply) != 2 {
		return "", nil, errors.New("the server's reply has no cursor")
	}
	if cursor, err = reply[0].Text(); err != nil {
		return "", nil, err
	}
	list, err := reply[1].List()
	changes = make([]change, len(list))
	for i := 0; i < len(list) && err == nil; i++ {
		changes[i], err = read(list[i])
	}
	return cursor, changes, err
}
