package transfer

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/fbfkv/fbfkv/cmd/fbfkv/internal/connect"
)

// typeBloom is what TYPE says of RedisBloom's filters, and of ours.
const typeBloom = "MBbloom--"

// marker is the key that says that a filter is being copied. It is there until all chunks are,
// so that the next run begins again with one that broke off. A key of that name with another
// value than markerValue is somebody's own.
func marker(key string) string { return "import:" + key }

const markerValue = 6015183217823421747

// copyFilter copies a Bloom filter in chunks. It returns why the key is skipped, if it is no
// filter, or the target refuses it.
func (m *importer) copyFilter(r *record, left int64) (why string, err error) {
	ctx := context.Background()
	source, err := m.client.Do(ctx, "TYPE", r.key).Text()
	if err != nil {
		return "", fmt.Errorf("reading from %s: %w", m.client.Addr(), err)
	}
	if source != typeBloom {
		return "not a string", nil
	}
	// ask sends commands to the target, all of which must go well.
	ask := func(commands ...[]any) (replies []connect.Reply, err error) {
		replies, err = m.target.Pipeline(ctx, commands)
		if err == nil {
			err = connect.FirstError(replies)
		}
		if err != nil {
			err = fmt.Errorf("writing to %s: %w", m.addr, err)
		}
		return replies, err
	}
	state, err := ask([]any{"TYPE", r.key}, []any{"TYPE", marker(r.key)})
	if err != nil {
		return "", err
	}
	kind, _ := state[0].Text()
	marked, _ := state[1].Text()
	begun := marked != "none"
	if begun {
		value, err := m.target.Do(ctx, "GET", marker(r.key)).Int()
		if err != nil && !connect.IsReply(err) {
			return "", fmt.Errorf("writing to %s: %w", m.addr, err)
		}
		if err != nil || value != markerValue {
			return fmt.Sprintf("fbfkv has a key %q, which marks a filter that is being copied: delete or "+
				"rename it first", marker(r.key)), nil
		}
	}
	there := kind != "none" && !begun
	switch {
	case there && kind != typeBloom:
		return "fbfkv has a key of type " + kind, nil
	case there && !m.replace:
		m.existed++
		return "", nil
	}
	if _, err := ask([]any{"SET", marker(r.key), markerValue}, []any{"DEL", r.key}); err != nil {
		return "", err
	}
	for iterator := int64(0); ; {
		next, data, err := dumped(m.client.Do(ctx, "BF.SCANDUMP", r.key, iterator))
		if err == nil && next != 0 && next <= iterator { // a filter would be copied for ever
			err = fmt.Errorf("BF.SCANDUMP does not come to an end: %d follows %d", next, iterator)
		}
		if err != nil {
			return "", fmt.Errorf("reading %q from %s: %w", r.key, m.client.Addr(), err)
		}
		if iterator = next; iterator == 0 {
			break
		}
		err = m.target.Do(ctx, "BF.LOADCHUNK", r.key, iterator, data).Err()
		if connect.IsReply(err) {
			return "fbfkv says: " + err.Error(), m.target.Do(ctx, "DEL", r.key, marker(r.key)).Err()
		} else if err != nil {
			return "", fmt.Errorf("writing to %s: %w", m.addr, err)
		}
	}
	end := [][]any{{"MULTI"}, {"DEL", marker(r.key)}, {"EXEC"}}
	if r.expiry >= 0 {
		end = slices.Insert(end, 1, []any{"PEXPIRE", r.key, max(left, 1)})
	}
	if _, err := ask(end...); err != nil {
		return "", err
	}
	if there {
		m.replaced++
	} else {
		m.imported++
	}
	return "", nil
}

// dumped reads the answer to BF.SCANDUMP: where to go on, 0 at the end, and a chunk.
func dumped(r connect.Reply) (next int64, data string, err error) {
	parts, err := r.List()
	if err == nil && len(parts) != 2 {
		err = errors.New("the answer has an unexpected form")
	}
	if err != nil {
		return 0, "", err
	}
	if next, err = parts[0].Int(); err == nil && next != 0 {
		data, err = parts[1].Text()
	}
	return next, data, err
}
