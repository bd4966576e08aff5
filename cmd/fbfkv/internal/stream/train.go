package stream

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Bits of a Bloom filter may be set again. Counts may not be added again, so a batch has an
// opid: the run and the number of its first line. With --source there is a position besides,
// which outlives the window in which opids are remembered. It is committed together with
// counts, in one transaction that ends if they are refused, and after bits. WATCH stops the
// late EXEC of a feeder that was killed.

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
	name := r.source
	if name == "" {
		name = r.id
	}
	command := func(b *batch) []any {
		items, counts := b.sum()
		if r.cms == "" {
			return append([]any{"BF.MADD", key}, items...)
		}
		c := []any{"CMS.CINCRBY", key, fmt.Sprint(name, ":", b.first)}
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
	if r.from != "" {
		return failure("--source goes with standard input: the entries of a stream have ids")
	}
	progress := "progress:" + r.source + ":{" + tagOf(key) + "}"
	r.first, err = r.position(progress)
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
func refused(c *redis.Cmd) error {
	elements, _ := c.Slice()
	for _, e := range elements {
		if err, ok := e.(error); ok {
			return err
		}
	}
	return c.Err()
}

// position returns how many lines were committed.
func (r *run) position(progress string) (n int64, err error) {
	err = r.try(context.Background(), func() error {
		n, err = r.client.Get(context.Background(), progress).Int64()
		if errors.Is(err, redis.Nil) {
			n, err = 0, nil
		}
		return err
	})
	return n, err
}

// commit moves the position over a batch, unless that was done, with counts in the same
// transaction. If they are refused, the transaction ends there.
func (r *run) commit(ctx context.Context, progress string, b *batch, counts ...[]any) error {
	next := b.first + b.n
	return r.try(ctx, func() error {
		return r.client.Watch(ctx, func(tx *redis.Tx) error {
			at, err := tx.Get(ctx, progress).Int64()
			switch {
			case errors.Is(err, redis.Nil):
			case err != nil:
				return err
			case at == next:
				return nil // only the answer was lost
			}
			if at != b.first {
				return failure(fmt.Sprintf("another run has taken %s to line %d", progress, at))
			}
			pipe := tx.Pipeline()
			pipe.Do(ctx, "MULTI", "STOPONERROR")
			for _, c := range counts {
				pipe.Do(ctx, c...)
			}
			pipe.Do(ctx, "SET", progress, next)
			exec := pipe.Do(ctx, "EXEC")
			if _, err = pipe.Exec(ctx); errors.Is(exec.Err(), redis.Nil) {
				return failure("another run has changed " + progress)
			}
			if err == nil {
				err = refused(exec)
			}
			return err
		}, progress)
	})
}

// failure is an error after which trying again is of no use.
type failure string

// Error returns its text.
func (f failure) Error() string { return string(f) }

// RedisError makes try take it for an answer of the server.
func (f failure) RedisError() {}
