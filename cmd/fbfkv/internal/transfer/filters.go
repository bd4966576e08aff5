package transfer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// typeBloom is what TYPE says of RedisBloom's filters, and of ours.
const typeBloom = "MBbloom--"

// marker is the key that says that a filter is being copied. It is there until all chunks are,
// so that the next run begins again with one that broke off.
func marker(key string) string { return "import:" + key }

// copyFilter copies a Bloom filter in chunks. It returns why the key is skipped, if it is no
// filter, or the target refuses it.
func (m *importer) copyFilter(r *record, left int64) (why string, err error) {
	ctx := context.Background()
	source, err := m.client.Type(ctx, r.key).Result()
	if err != nil {
		return "", fmt.Errorf("reading from %s: %w", m.client.Options().Addr, err)
	}
	if source != typeBloom {
		return "not a string", nil
	}
	pipe := m.target.Pipeline()
	kind, begun := pipe.Type(ctx, r.key), pipe.Exists(ctx, marker(r.key))
	if _, err := pipe.Exec(ctx); err != nil {
		return "", fmt.Errorf("%s: %w", m.addr, err)
	}
	there := kind.Val() != "none" && begun.Val() == 0
	switch {
	case there && kind.Val() != typeBloom:
		return "fbfkv has a key of type " + kind.Val(), nil
	case there && !m.replace:
		m.existed++
		return "", nil
	}
	pipe = m.target.Pipeline()
	pipe.Set(ctx, marker(r.key), 1, 0)
	pipe.Del(ctx, r.key)
	if _, err := pipe.Exec(ctx); err != nil {
		return "", fmt.Errorf("%s: %w", m.addr, err)
	}
	for iterator := int64(0); ; {
		dump, err := m.client.BFScanDump(ctx, r.key, iterator).Result()
		if err != nil {
			return "", fmt.Errorf("reading %q from %s: %w", r.key, m.client.Options().Addr, err)
		}
		if iterator = dump.Iter; iterator == 0 {
			break
		}
		var reply redis.Error
		if err := m.target.BFLoadChunk(ctx, r.key, iterator, dump.Data).Err(); errors.As(err, &reply) {
			return "fbfkv says: " + err.Error(), m.target.Del(ctx, r.key, marker(r.key)).Err()
		} else if err != nil {
			return "", fmt.Errorf("writing to %s: %w", m.addr, err)
		}
	}
	pipe = m.target.TxPipeline()
	if r.expiry >= 0 {
		pipe.PExpire(ctx, r.key, time.Duration(max(left, 1))*time.Millisecond)
	}
	pipe.Del(ctx, marker(r.key))
	if _, err := pipe.Exec(ctx); err != nil {
		return "", fmt.Errorf("writing to %s: %w", m.addr, err)
	}
	if there {
		m.replaced++
	} else {
		m.imported++
	}
	return "", nil
}
