package transfer

import (
	"bufio"
	"encoding/base64"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/fbfkv/fbfkv/cmd/fbfkv/internal/connect"
	"github.com/fbfkv/fbfkv/resp"
	"github.com/fbfkv/fbfkv/store"
)

const exportHelp = `Writes the counters of a running fbfkv server to standard output, with their expiries:

  resp     SET key value [PXAT ms], for redis-cli --pipe into a Redis or another fbfkv
  csv      lines key,value,expires_unix_ms; the first one names the columns
  ndjson   an object {"key":…,"value":…,"expires_unix_ms":…} per line. A key that is not
           UTF-8 becomes "key_base64"

With --dir it reads a data directory that no server has open, and changes nothing there. If the
op log is damaged it reads up to the damage, says so, and the exit status is 2. Filters and
sketches are left out. The directory of a cluster's node is refused: the other nodes have it all.

Filters are skipped, and listed on standard error. A counter that changes meanwhile is
written as it was at some moment, perhaps twice. The exit status is 0, 2 if
keys were skipped, 130 after Ctrl-C, otherwise 1. Set the password in the environment
variable ` + connect.PasswordVariable + `: there, other users cannot see it.`

// maxBuffered is how much of the output is collected before it is written, in bytes.
const maxBuffered = 256 << 10

// formats are the ways to write a counter, as GET answers it, that expires at a time in Unix
// milliseconds, -1: never. They write the header, if there is one, and return the function.
var formats = map[string]func(*bufio.Writer) func(key, value string, expires int64) error{
	"resp": asRESP, "csv": asCSV, "ndjson": asNDJSON,
}

// NewExport returns the subcommand.
func NewExport() *cobra.Command {
	var (
		w           = walk{stage: "exporting", expiry: "PEXPIRETIME"}
		format, dir string
		server      connect.Flags
	)
	cmd := &cobra.Command{
		Use:   "export [HOST:PORT | --dir DIR] [--format resp|csv|ndjson] [--match P] " + connect.Usage,
		Short: "write the counters of a server, or of a damaged directory, to standard output",
		Long:  exportHelp,
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			begin, ok := formats[format]
			if !ok {
				return fmt.Errorf("--format is resp, csv or ndjson, not %q", format)
			}
			if dir != "" && len(args) > 0 {
				return errors.New("export reads either a server or, with --dir, a directory")
			}
			out := bufio.NewWriterSize(cmd.OutOrStdout(), maxBuffered)
			if dir != "" {
				return exportDir(dir, out, begin(out), cmd.ErrOrStderr())
			}
			addr, _ := connect.Server(args, 0)
			if w.client, err = server.Client(addr, replyTimeout); err != nil {
				return err
			}
			defer w.client.Close()
			return w.export(out, begin(out), cmd.ErrOrStderr())
		},
	}
	addFlags(cmd, &w, &server)
	cmd.Flags().StringVar(&dir, "dir", "", "read this data directory, which no server has open")
	cmd.MarkFlagsMutuallyExclusive("dir", "match")
	cmd.Flags().StringVar(&format, "format", "resp", "what to write: resp, csv or ndjson")
	return cmd
}

// export writes every counter. What it wrote ends after a whole one, whatever happens.
func (w *walk) export(out *bufio.Writer, write func(string, string, int64) error, stderr io.Writer) error {
	var skipped int64
	err := w.each(stderr, func(p page) error {
		for i := range p.records {
			r := &p.records[i]
			if r.expiry == -2 { // it has expired meanwhile
				continue
			}
			if why := r.counter(); why != "" {
				skipped++
				w.progress.Clear()
				fmt.Fprintf(stderr, "skipped %q: %s\n", r.key, why)
				continue
			}
			if err := write(r.key, r.value, r.expiry); err != nil {
				return err
			}
		}
		return nil
	})
	if failed := out.Flush(); err == nil {
		err = failed
	}
	return w.ended(err, skipped, "what was written is not complete")
}

// exportDir writes every counter of a directory, up to damage.
func exportDir(dir string, out *bufio.Writer, write func(string, string, int64) error,
	stderr io.Writer) error {
	damage, err := store.Export(store.ExportOptions{Dir: dir}, func(c store.Exported) error {
		expires := c.Expire
		if expires == 0 {
			expires = -1
		}
		return write(string(c.Key), string(store.AppendDecimal(nil, c.Value, c.Scale)), expires)
	})
	for _, found := range damage {
		fmt.Fprintf(stderr, "damaged: %v\n", found)
	}
	if failed := out.Flush(); err == nil {
		err = failed
	}
	switch {
	case err != nil:
		return fmt.Errorf("%w; the output is not complete", err)
	case len(damage) > 0:
		return exit{errors.New("the directory is damaged: entries behind the damage are missing"),
			exitSkipped}
	}
	return nil
}

func asRESP(out *bufio.Writer) func(string, string, int64) error {
	var w resp.Writer
	return func(key, value string, expires int64) error {
		w.Reset()
		words := []string{"SET", key, value}
		if expires >= 0 {
			words = append(words, "PXAT", strconv.FormatInt(expires, 10))
		}
		w.BulkStrings(words)
		_, err := out.Write(w.Bytes())
		return err
	}
}

func asCSV(out *bufio.Writer) func(string, string, int64) error {
	w := csv.NewWriter(out)                              // whose buffer out is, so that it needs no Flush
	w.Write([]string{"key", "value", "expires_unix_ms"}) // fails with the next
	return func(key, value string, expires int64) error {
		end := ""
		if expires >= 0 {
			end = strconv.FormatInt(expires, 10)
		}
		return w.Write([]string{key, value, end})
	}
}

func asNDJSON(out *bufio.Writer) func(string, string, int64) error {
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	return func(key, value string, expires int64) error {
		line := struct {
			Key     *string     `json:"key,omitempty"`
			Base64  string      `json:"key_base64,omitempty"`
			Value   json.Number `json:"value"`
			Expires *int64      `json:"expires_unix_ms,omitempty"`
		}{Value: json.Number(value)}
		if utf8.ValidString(key) {
			line.Key = &key
		} else {
			line.Base64 = base64.StdEncoding.EncodeToString([]byte(key))
		}
		if expires >= 0 {
			line.Expires = &expires
		}
		return encoder.Encode(line)
	}
}
