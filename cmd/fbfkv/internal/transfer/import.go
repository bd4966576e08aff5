package transfer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fbfkv/fbfkv/cmd/fbfkv/internal/connect"
)

const importHelp = `Copies the counters and Bloom filters of a Redis, with their expiries, into a running
fbfkv server.
SOURCE is redis://user@host:port/database, or rediss://… for TLS. Its password is in the
environment variable ` + connect.SourceVariable + ` or in the file of --source-password-file;
other users of the machine could read one in SOURCE.

It only sets counters that do not exist yet. So it may be run again at any time, also after
it broke off: existing counters are left alone. With --replace it overwrites them as well;
it deletes none. It skips, and lists, keys that are neither a number nor a filter of RedisBloom,
and those that their table in fbfkv refuses: decimals need one with SCALE. Clients may use both
servers meanwhile, but later changes in the source are not copied.

The exit status is 0 if every key is in fbfkv now, 2 if some were skipped, 130 after
Ctrl-C, otherwise 1. The flags of the user are those of fbfkv; set the password in the
environment variable ` + connect.PasswordVariable + `: there, other users cannot see it. The flags of
the certificates apply to both servers.`

// importer is one run of the command.
type importer struct {
	walk

	server      connect.Flags
	addr        string
	replace     bool
	clusterNode bool
	secretFile  string

	target *connect.Client
	out    io.Writer

	imported, existed, replaced, same, expired, skipped int64
}

// NewImport returns the subcommand.
func NewImport() *cobra.Command {
	var m importer
	cmd := &cobra.Command{
		Use:   "import [HOST:PORT] SOURCE [--match P] [--replace] [--cluster-node] " + connect.Usage,
		Short: "copy counters and Bloom filters from a Redis",
		Long:  importHelp,
		Args:  cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			m.out = cmd.OutOrStdout()
			m.addr, args = connect.Server(args, 1)
			return m.run(args[0], cmd.ErrOrStderr())
		},
	}
	addFlags(cmd, &m.walk, &m.server)
	cmd.Flags().BoolVar(&m.replace, "replace", false, "also set counters that exist already")
	cmd.Flags().StringVar(&m.secretFile, "source-password-file", "", "a file with the source's password")
	cmd.Flags().BoolVar(&m.clusterNode, "cluster-node", false, "import the part of the keys that a node "+
		"of a Redis cluster holds")
	return cmd
}

// addFlags declares what both commands have.
func addFlags(cmd *cobra.Command, w *walk, server *connect.Flags) {
	cmd.Flags().StringVar(&w.match, "match", "*", "copy only keys that match a pattern, like SCAN's")
	server.Add(cmd.Flags())
}

func (m *importer) run(source string, stderr io.Writer) (err error) {
	password, err := m.sourcePassword()
	if err != nil {
		return err
	}
	if m.client, err = m.server.FromURL(source, password, replyTimeout); err != nil {
		return err
	}
	defer m.client.Close()
	if m.target, err = m.server.Client(m.addr, replyTimeout); err != nil {
		return err
	}
	defer m.target.Close()
	if err := m.checkServers(); err != nil {
		return err
	}
	m.stage, m.expiry = "importing", "PTTL"
	began := time.Now()
	err = m.each(stderr, m.write)
	m.seen = m.imported + m.existed + m.replaced + m.same + m.expired + m.skipped // a page's part, too
	took := time.Since(began).Seconds()
	fmt.Fprintf(m.out, "imported %d of %d keys in %.1f s, %.0f keys a second", m.imported, m.seen, took,
		float64(m.seen)/took)
	for _, part := range []struct {
		n    int64
		what string
	}{
		{m.existed, "existed already and were left alone"},
		{m.replaced, "existed already and were replaced"},
		{m.same, "existed already with the same value"},
		{m.expired, "expired meanwhile"},
		{m.skipped, "were skipped"},
	} {
		if part.n > 0 {
			fmt.Fprintf(m.out, "; %d %s", part.n, part.what)
		}
	}
	fmt.Fprintln(m.out)
	return m.ended(err, m.skipped, "run it again: it leaves alone what is there")
}

// maxSecret bounds a file with a password, in bytes.
const maxSecret = 4 << 10

// sourcePassword returns the source's password, from the file or the environment.
func (m *importer) sourcePassword() (string, error) {
	if m.secretFile == "" {
		return os.Getenv(connect.SourceVariable), nil
	}
	f, err := os.Open(m.secretFile)
	if err != nil {
		return "", fmt.Errorf("--source-password-file: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxSecret+1))
	if err == nil && len(b) > maxSecret {
		err = fmt.Errorf("longer than %d bytes", maxSecret)
	}
	if err != nil {
		return "", fmt.Errorf("--source-password-file %s: %w", m.secretFile, err)
	}
	return strings.TrimRight(string(b), "\r\n"), nil
}

// checkServers refuses a target that is not an fbfkv server, and a source that would give
// only some of its keys.
func (m *importer) checkServers() error {
	target, err := describe(m.target)
	if err != nil {
		return err
	}
	if target != nil && target["fbfkv_version"] == "" {
		return fmt.Errorf("%s is not an fbfkv server: name yours before the source, as HOST:PORT", m.addr)
	}
	source, err := describe(m.client)
	if err != nil {
		return err
	}
	if source["redis_mode"] == "cluster" && !m.clusterNode {
		return fmt.Errorf("the source %s is a node of a cluster and holds only a part of the keys: "+
			"run import once for each of its masters, with --cluster-node", m.client.Addr())
	}
	if target != nil && target["run_id"] == source["run_id"] {
		return fmt.Errorf("source and target are the same server, %s", m.addr)
	}
	return nil
}

// write sets the counters of a page. A page under way is finished when the user interrupts,
// so that the count is right.
func (m *importer) write(p page) error {
	sets, from := make([][]any, 0, len(p.records)), make([]*record, 0, len(p.records))
	age := time.Since(p.asked).Milliseconds()
	for i := range p.records {
		r := &p.records[i]
		why := r.counter()
		left := r.expiry - age
		switch {
		case r.expiry == -2, r.expiry >= 0 && left <= 0:
			m.expired++
			continue
		case r.err != nil:
			var err error
			if why, err = m.copyFilter(r, left); err != nil {
				return err
			}
			fallthrough
		case why != "":
			if why != "" {
				m.skip(r.key, why)
			}
			continue
		}
		set := []any{"SET", r.key, r.value}
		if r.expiry >= 0 {
			set = append(set, "PX", left)
		}
		if m.replace {
			set = append(set, "GET")
		} else {
			set = append(set, "NX")
		}
		sets, from = append(sets, set), append(from, r)
	}
	if len(sets) == 0 {
		return nil
	}
	replies, err := m.target.Pipeline(context.Background(), sets)
	if err != nil {
		return fmt.Errorf("writing to %s: %w", m.addr, err)
	}
	for i, set := range replies { // those behind an error are done, too
		if failed := m.count(from[i], set); err == nil {
			err = failed
		}
	}
	return err
}

// count counts what became of a key. An error of the key's own skips it; any other ends
// the run.
func (m *importer) count(r *record, set connect.Reply) error {
	old, err := set.Text()
	switch {
	case errors.Is(err, connect.Nil) && !m.replace:
		m.existed++
	case err == nil && !m.replace, errors.Is(err, connect.Nil):
		m.imported++
	case err == nil && old == r.value:
		m.same++
	case err == nil:
		m.replaced++
	case strings.HasPrefix(err.Error(), "ERR "), strings.HasPrefix(err.Error(), "WRONGTYPE "),
		strings.HasPrefix(err.Error(), "BOUND "):
		m.skip(r.key, "fbfkv says: "+err.Error())
	default:
		return fmt.Errorf("%s refuses %q: %w", m.addr, r.key, err)
	}
	return nil
}

// skip lists a key that is not imported.
func (m *importer) skip(key, why string) {
	m.skipped++
	m.progress.Clear()
	fmt.Fprintf(m.out, "skipped %q: %s\n", key, why)
}
