package follow

import (
	"bufio"
	"encoding/base64"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/fbfkv/fbfkv/cmd/fbfkv/internal/connect"
)

// change is a change of a counter. A field without a value is nil.
type change struct {
	partition, sequence, index, what string
	key, opid, delta, value          *string
	time                             string
	region                           *string
}

// flushes reports whether all keys of the partition were deleted.
func (c change) flushes() bool { return c.what == "flushed" }

// read reads a change of a reply to CFOLLOW.
func read(r connect.Reply) (c change, err error) {
	list, err := r.List()
	if err == nil && len(list) != 10 {
		err = errors.New("the server's reply has another form of changes")
	}
	if err != nil {
		return c, err
	}
	for i, to := range []*string{0: &c.partition, 1: &c.sequence, 2: &c.index, 3: &c.what, 8: &c.time} {
		if to != nil && err == nil {
			*to, err = list[i].Text()
		}
	}
	for i, to := range []**string{4: &c.key, 5: &c.opid, 6: &c.delta, 7: &c.value, 9: &c.region} {
		if to == nil {
			continue
		}
		switch text, failed := list[i].Text(); {
		case failed == nil:
			*to = &text
		case !errors.Is(failed, connect.Nil):
			err = failed
		}
	}
	for _, n := range []*string{c.delta, c.value} {
		if err == nil && n != nil && !number.MatchString(*n) {
			err = fmt.Errorf("the server's reply has %q for a number", *n)
		}
	}
	if err == nil && c.key == nil && c.what != "flushed" && c.what != "snapshot" {
		err = errors.New("the server's reply has a change without a key")
	}
	return c, err
}

var number = regexp.MustCompile(`^-?[0-9]+(\.[0-9]+)?$`)

// writer writes changes, up to a cursor.
type writer func(cursor string, changes []change) error

// formats make writers, for a new output or one that goes on.
var formats = map[string]func(out *bufio.Writer, begins bool) writer{
	"ndjson": asNDJSON, "csv": asCSV, "sql": asSQL,
}

// text is a text in JSON, or its Base64 if it is not UTF-8.
func text(s *string) (plain, encoded *string) {
	if s == nil || utf8.ValidString(*s) {
		return s, nil
	}
	e := base64.StdEncoding.EncodeToString([]byte(*s))
	return nil, &e
}

func asNDJSON(out *bufio.Writer, _ bool) writer {
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	return func(_ string, changes []change) error {
		for _, c := range changes {
			line := struct {
				Partition  json.Number  `json:"partition"`
				Sequence   json.Number  `json:"sequence"`
				Index      json.Number  `json:"index"`
				Change     string       `json:"change"`
				Key        *string      `json:"key,omitempty"`
				KeyBase64  *string      `json:"key_base64,omitempty"`
				Opid       *string      `json:"opid,omitempty"`
				OpidBase64 *string      `json:"opid_base64,omitempty"`
				Delta      *json.Number `json:"delta,omitempty"`
				Value      *json.Number `json:"value,omitempty"`
				Time       json.Number  `json:"time"`
				Region     *string      `json:"region,omitempty"`
			}{Partition: json.Number(c.partition), Sequence: json.Number(c.sequence),
				Index: json.Number(c.index), Change: c.what, Delta: (*json.Number)(c.delta),
				Value: (*json.Number)(c.value), Time: json.Number(c.time), Region: c.region}
			line.Key, line.KeyBase64 = text(c.key)
			line.Opid, line.OpidBase64 = text(c.opid)
			if err := encoder.Encode(line); err != nil {
				return err
			}
		}
		return nil
	}
}

func asCSV(out *bufio.Writer, begins bool) writer {
	w := csv.NewWriter(out) // whose buffer out is, so that it needs no Flush
	if begins {
		w.Write([]string{"partition", "sequence", "index", "change", "key", "opid", "delta", "value", "time",
			"region"})
	}
	return func(_ string, changes []change) error {
		for _, c := range changes {
			line := []string{c.partition, c.sequence, c.index, c.what, 8: c.time, 9: ""}
			for i, s := range []*string{4: c.key, 5: c.opid, 6: c.delta, 7: c.value, 9: c.region} {
				if s != nil {
					line[i] = *s
				}
			}
			if err := w.Write(line); err != nil {
				return err
			}
		}
		return nil
	}
}

// rows is how many rows a statement has at most.
const rows = 500

// asSQL writes what each counter is at the end of the changes, and the cursor, as one transaction.
func asSQL(out *bufio.Writer, _ bool) writer {
	begun := false
	return func(cursor string, changes []change) error {
		values, emptied := make(map[string]*string), false
		for _, c := range changes {
			switch {
			case c.key == nil: // in all partitions: what is before it here is gone, or told again
				clear(values)
				emptied = true
			case !utf8.ValidString(*c.key) || strings.ContainsRune(*c.key, 0):
				return fmt.Errorf("the key %q is no text for SQL: follow other keys with --prefix, or take another "+
					"--format", *c.key)
			default:
				values[*c.key] = c.value // nil: it has ended
			}
		}
		if !begun {
			out.WriteString("CREATE TABLE IF NOT EXISTS counters (key TEXT PRIMARY KEY, value NUMERIC NOT NULL);\n" +
				"CREATE TABLE IF NOT EXISTS fbfkv_follow (cursor TEXT NOT NULL);\n")
			begun = true
		}
		out.WriteString("BEGIN;\n")
		if emptied {
			out.WriteString("DELETE FROM counters;\n")
		}
		var set, ended []string
		for _, key := range slices.Sorted(maps.Keys(values)) {
			quoted := quote(key)
			if v := values[key]; v != nil {
				set = append(set, "("+quoted+", "+*v+")")
			} else {
				ended = append(ended, quoted)
			}
		}
		for part := range slices.Chunk(set, rows) {
			fmt.Fprintf(out, "INSERT INTO counters (key, value) VALUES %s ON CONFLICT (key) DO UPDATE SET value = "+
				"excluded.value;\n", strings.Join(part, ", "))
		}
		for part := range slices.Chunk(ended, rows) {
			fmt.Fprintf(out, "DELETE FROM counters WHERE key IN (%s);\n", strings.Join(part, ", "))
		}
		_, err := fmt.Fprintf(out, "DELETE FROM fbfkv_follow;\nINSERT INTO fbfkv_follow (cursor) VALUES (%s);\n"+
			"COMMIT;\n", quote(cursor))
		return err
	}
}

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }
