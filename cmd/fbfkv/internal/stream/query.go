package stream

import (
	"bufio"
	"context"
	"fmt"
)

// query prepares `stream query`.
func (r *run) query() error {
	key, err := r.key(map[string]string{r.bloom: typeBloom, r.cms: typeCMS})
	if err != nil {
		return err
	}
	if r.stage = "asked for"; r.cms != "" && r.invert {
		return failure("--invert goes with --bloom")
	}
	name := "BF.MEXISTS"
	if r.cms != "" {
		name = "CMS.QUERY"
	}
	r.handle = func(ctx context.Context, b *batch) error {
		if len(b.items) == 0 {
			return nil
		}
		command := []any{name, key}
		for _, item := range b.items {
			command = append(command, item)
		}
		replies, err := r.pipeline(ctx, [][]any{command})
		if err != nil {
			return err
		}
		answers, err := replies[0].Ints()
		if r.cms == "" {
			return r.print(b, answers, err, func(i int) (string, bool) {
				return b.lines[i], (answers[i] != 0) != r.invert
			})
		}
		return r.print(b, answers, err, func(i int) (string, bool) {
			return fmt.Sprintf("%s\t%d", b.items[i], answers[i]), true
		})
	}
	return nil
}

// print writes the results for the lines of a batch, each of which has an answer.
func (r *run) print(b *batch, answers []int64, err error, line func(i int) (string, bool)) error {
	switch {
	case err != nil:
		return err
	case len(answers) != len(b.lines):
		return fmt.Errorf("the server answers %d items of %d", len(answers), len(b.lines))
	}
	w := bufio.NewWriter(r.out)
	for i := range b.lines {
		if text, ok := line(i); ok {
			w.WriteString(text)
			w.WriteByte('\n')
		}
	}
	return w.Flush()
}

// cAddItems is how many items one BF.CADD takes.
const cAddItems = 64

// dedup prepares `stream dedup`. A filter's answer that an item is new must not be lost:
// BF.CADD gives it again. A forgetful filter has no such command, so that a broken connection
// ends the run.
func (r *run) dedup() error {
	key, err := r.key(map[string]string{r.bloom: typeBloom, r.fbf: typeFBF})
	if err != nil {
		return err
	}
	r.stage = "looked at"
	r.handle = func(ctx context.Context, b *batch) error {
		var commands [][]any
		for from := 0; from < len(b.items); {
			c, to := []any{"FBF.MADD", key}, min(from+cAddItems, len(b.items))
			switch {
			case r.fbf != "":
			case b.ids != nil:
				c, to = []any{"BF.CADD", key, b.ids[from]}, from+1
			default:
				c = []any{"BF.CADD", key, fmt.Sprint(r.runID, ":", b.first+int64(from))}
			}
			for ; from < to; from++ {
				c = append(c, b.items[from])
			}
			commands = append(commands, c)
		}
		if len(commands) == 0 {
			return nil
		}
		send := r.pipeline
		if r.fbf != "" {
			send = r.once
		}
		replies, err := send(ctx, commands)
		var added []int64
		for i := 0; i < len(replies) && err == nil; i++ {
			var more []int64
			more, err = replies[i].Ints()
			added = append(added, more...)
		}
		return r.print(b, added, err, func(i int) (string, bool) { return b.lines[i], added[i] != 0 })
	}
	return nil
}
