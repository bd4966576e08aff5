package stream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fbfkv/fbfkv/cmd/fbfkv/internal/connect"
)

// Bits of a Bloom filter may be set again. Counts may not be added again, so a batch has an
// opid: the run, and the number of its first line. With --source there is a position besides,
// which outlives the run. It is committed together with counts, in one transaction that ends
// if they are refused, and after bits. WATCH stops the late EXEC of a feeder that was killed.
// So the position alone says how far other runs have counted, and without it all counts again.

// sum returns the items of a batch, each once, and how often it is there.
func (b *batch) sum() (items []any, counts map[any]int64) {
	counts = make(map[any]int64, len(b.items))
	for _, item := range b.items {
		if counts[item]++; counts[item] == 1 {
			items = append(items, item)
		}
	}
	return items, counts
}

// train prepares `stream train`.
func (r *run) train() error {
	key, err := r.key(map[string]string{r.bloom: typeBloom, r.cms: typeCMS})
	if err != nil {
		return err
	}
	r.stage = "trained"
	command := func(b *batch) []any {
		items, counts := b.sum()
		if r.cms == "" {
			return append([]any{"BF.MADD", key}, items...)
		}
		c := []any{"CMS.CINCRBY", key, fmt.Sprintf("%s:%d", r.runID, b.first)}
		for _, item := range items {
			c = append(c, item, counts[item])
		}
		return c
	}
	commands := func(b *batch) (all [][]any) {
		if r.cms == "" || b.ids == nil {
			return [][]any{command(b)}
		}
		for i, id := range b.ids {
			all = append(all, []any{"CMS.CINCRBY", key, id, b.items[i], 1})
		}
		return all
	}
	r.handle = func(ctx context.Context, b *batch) error {
		if len(b.items) == 0 {
			return nil
		}
		replies, err := r.pipeline(ctx, commands(b))
		for i := 0; i < len(replies) && err == nil; i++ {
			err = refused(replies[i])
		}
		return err
	}
	if r.source == "" {
		return nil
	}
	progress := "progress:" + r.source + ":{" + tagOf(key) + "}"
	err = r.resume(progress, "; to count all of it under this name, DEL "+progress+" first")
	add := r.handle
	r.handle = func(ctx context.Context, b *batch) error {
		if r.cms != "" && len(b.items) > 0 {
			return r.commit(ctx, progress, b, command(b))
		}
		if err := add(ctx, b); err != nil {
			return err
		}
		return r.commit(ctx, progress, b)
	}
	return err
}

// resume passes over the lines of which a position was committed, under a key. Another input is refused, with
// an advice.
func (r *run) resume(progress, advice string) (err error) {
	if r.redis != "" {
		return failure("--source goes with standard input: the entries of a stream have ids")
	}
	if strings.ContainsAny(r.source, "{}") {
		return failure("--source must have no braces")
	}
	r.refuse = func(why string) error {
		return fmt.Errorf("this is not the input of which --source %s has counted %d lines: %s. If it is "+
			"another file, such as the next one after log rotation, "+
			"give it a name of its own%s", r.source, r.committed.lines, why, advice)
	}
	r.committed, err = r.position(progress)
	return err
}

// tagOf returns what must be in the braces of another key so that it is in the same slot.
func tagOf(key string) string {
	if _, rest, ok := strings.Cut(key, "{"); ok {
		if tag, _, ok := strings.Cut(rest, "}"); ok && tag != "" {
			return tag
		}
	}
	return key
}

// refused returns the first error among the elements of a reply.
func refused(r connect.Reply) error {
	if elements, err := r.List(); err == nil {
		return connect.FirstError(elements)
	}
	return r.Err()
}

// firstOf and lastOf are the keys of the fingerprints beside a position.
func firstOf(progress string) string { return progress + ":first" }
func lastOf(progress string) string  { return progress + ":last" }

// position returns which lines were committed.
func (r *run) position(progress string) (at position, err error) {
	err = r.try(context.Background(), func() error {
		all, err := r.client.Do(context.Background(), "MGET", progress, firstOf(progress),
			lastOf(progress)).List()
		if err == nil && len(all) != 3 {
			err = failure("the server answers another number of positions")
		}
		for i, n := range []*int64{&at.lines, &at.first, &at.last} {
			if err == nil {
				*n, err = lines(all[i])
			}
		}
		return err
	})
	return at, err
}

// lines reads a position; there is none at the beginning.
func lines(r connect.Reply) (int64, error) {
	n, err := r.Int()
	if errors.Is(err, connect.Nil) {
		return 0, nil
	}
	return n, err
}

// commit moves the position over a batch, unless that was done, with counts in the same
// transaction.
func (r *run) commit(ctx context.Context, progress string, b *batch, counts ...[]any) error {
	next := b.first + b.n
	return r.positionError(r.try(ctx, func() error {
		return r.client.With(ctx, progress, func(conn *connect.Conn) error {
			if err := conn.Do("WATCH", progress).Err(); err != nil {
				return err
			}
			at, err := lines(conn.Do("GET", progress))
			if err == nil && at == b.first {
				return execute(conn, progress, append(counts,
					[]any{"MSET", progress, next, firstOf(progress), r.line1, lastOf(progress), b.last}))
			}
			conn.Do("UNWATCH")
			if err == nil && at != next { // else only the answer was lost
				err = failure(fmt.Sprintf("another run has taken %s to line %d", progress, at))
			}
			return err
		})
	}))
}

// positionError says what helps if a table refuses positions.
func (r *run) positionError(err error) error {
	if err != nil && (strings.HasPrefix(err.Error(), "BOUND ") || strings.Contains(err.Error(), "out of range")) {
		return fmt.Errorf("%w: give the positions of --source a table of their own, CTABLE CREATE progress PREFIX "+
			"progress:, and begin again within WINDOW", err)
	}
	return err
}

// execute executes commands in a transaction, on a connection that watches progress. If the
// counts are refused, the transaction ends there.
func execute(conn *connect.Conn, progress string, commands [][]any) error {
	replies, err := conn.Pipeline(slices.Concat([][]any{{"CMULTI"}}, commands, [][]any{{"EXEC"}}))
	if err != nil {
		return err // it may have been executed
	}
	if err := connect.FirstError(replies[:len(replies)-1]); err != nil {
		return err // and EXEC has executed nothing
	}
	done, err := replies[len(replies)-1].List()
	if errors.Is(err, connect.Nil) {
		return failure("another run has changed " + progress)
	}
	for i := 0; i < len(done) && err == nil; i++ {
		err = refused(done[i])
	}
	return err
}

// failure is an error after which trying again is of no use.
type failure string

// Error returns its text.
func (f failure) Error() string { return string(f) }
