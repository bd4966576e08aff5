package stream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/fbfkv/fbfkv/cmd/fbfkv/internal/connect"
)

// consumer is the name under which entries are read: what was delivered to it, and not
// acknowledged, is read again at the start.
const consumer = "fbfkv"

// blockTime is how long the source waits for entries before it says that there are none.
const blockTime = time.Second

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
	stream := r.name
	source, err := r.login.FromURL(r.redis, os.Getenv(connect.SourceVariable), replyTimeout)
	if err != nil {
		return err
	}
	defer source.Close()
	for next, from := int64(0), "0"; ctx.Err() == nil; {
		reply := source.Do(ctx, "XREADGROUP", "GROUP", r.group, consumer, "COUNT", r.full, "BLOCK",
			blockTime.Milliseconds(), "STREAMS", stream, from)
		if ctx.Err() != nil {
			return nil
		}
		messages, err := messagesOf(reply)
		if err != nil {
			return fmt.Errorf("XREADGROUP %s: %w", stream, err)
		}
		if len(messages) == 0 {
			from = ">" // what was not acknowledged has all come
			continue
		}
		b := &batch{first: next, again: from == "0"}
		ack := []any{"XACK", stream, r.group}
		for _, m := range messages {
			ack = append(ack, m.id)
			if b.add(&r.input, m.line()) {
				b.ids = append(b.ids, stream+":"+m.id)
			}
		}
		done := make(chan struct{})
		b.done = func() error {
			defer close(done)
			return source.Do(context.WithoutCancel(ctx), ack...).Err()
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

// message is an entry of a stream.
type message struct {
	id     string
	fields map[string]string
}

// line returns the line of an entry: its value, or, if it has several, a JSON object of them,
// of which --json names one.
func (m *message) line() string {
	if len(m.fields) == 1 {
		for _, v := range m.fields {
			return v
		}
	}
	text, _ := json.Marshal(m.fields) // strings alone
	return string(text)
}

// messagesOf reads the answer to XREADGROUP of one stream: [[stream, [[id, [field, value, …]], …]]],
// or null. An entry that was deleted after it had been delivered has no fields.
func messagesOf(reply connect.Reply) (all []message, err error) {
	streams, err := reply.List()
	if errors.Is(err, connect.Nil) || err == nil && len(streams) == 0 {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	bad := errors.New("the answer does not contain entries of a stream")
	stream, err := streams[0].List()
	if err != nil || len(stream) != 2 {
		return nil, bad
	}
	entries, err := stream[1].List()
	if err != nil {
		return nil, bad
	}
	for _, e := range entries {
		parts, err := e.List()
		if err != nil || len(parts) != 2 {
			return nil, bad
		}
		id, err := parts[0].Text()
		words, noWords := parts[1].Texts()
		if err != nil || noWords != nil && !errors.Is(noWords, connect.Nil) || len(words)%2 != 0 {
			return nil, bad
		}
		m := message{id, make(map[string]string, len(words)/2)}
		for i := 0; i < len(words); i += 2 {
			m.fields[words[i]] = words[i+1]
		}
		all = append(all, m)
	}
	return all, nil
}
