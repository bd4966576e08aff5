package stream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// consumer is the name under which entries are read: what was delivered to it, and not
// acknowledged, is read again at the start.
const consumer = "fbfkv"

// entries reads a Redis Stream as a consumer group until ctx ends. Then failed says why it
// ended early, if it did. The opid of an entry is the stream and its id.
func (r *run) entries(ctx context.Context) (out <-chan *batch, failed *error) {
	batches, failed := make(chan *batch), new(error)
	go func() {
		defer close(batches)
		*failed = r.readEntries(ctx, batches)
	}()
	return batches, failed
}

func (r *run) readEntries(ctx context.Context, batches chan<- *batch) error {
	u, err := url.Parse(r.from)
	if err != nil || strings.Trim(u.Path, "/") == "" {
		return errors.New("--from is no redis://HOST:PORT/STREAM")
	}
	stream := strings.Trim(u.Path, "/")
	u.Path = ""
	source, err := r.login.FromURL(u.String(), replyTimeout)
	if err != nil {
		return err
	}
	defer source.Close()
	for next, from := int64(0), "0"; ctx.Err() == nil; {
		streams, err := source.XReadGroup(ctx, &redis.XReadGroupArgs{
			Group: r.group, Consumer: consumer, Streams: []string{stream, from}, Count: batchLines, Block: time.Second,
		}).Result()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil && !errors.Is(err, redis.Nil) {
			return fmt.Errorf("XREADGROUP %s: %w", stream, err)
		}
		if len(streams) == 0 || len(streams[0].Messages) == 0 {
			from = ">" // what was not acknowledged has all come
			continue
		}
		b := &batch{first: next}
		var ids []string
		for _, m := range streams[0].Messages {
			ids = append(ids, m.ID)
			if b.add(&r.input, lineOf(m.Values)) {
				b.ids = append(b.ids, stream+":"+m.ID)
			}
		}
		done := make(chan struct{})
		b.done = func() error {
			defer close(done)
			return source.XAck(context.WithoutCancel(ctx), stream, r.group, ids...).Err()
		}
		next += b.n
		select {
		case batches <- b:
		case <-ctx.Done():
			return nil
		}
		select {
		case <-done: // else what is pending would be read twice
		case <-ctx.Done():
			return nil
		}
	}
	return nil
}

// lineOf returns the line of an entry: its value, or, if it has several, a JSON object of them,
// of which --json names one.
func lineOf(values map[string]any) string {
	if len(values) == 1 {
		for _, v := range values {
			return fmt.Sprint(v)
		}
	}
	text, _ := json.Marshal(values) // strings alone
	return string(text)
}
