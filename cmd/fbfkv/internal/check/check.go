// Package check is the command `fbfkv check`: it examines a data directory, or
// a backup, that no server has open, and says in plain words what is wrong.
package check

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/fbfkv/fbfkv/cmd/fbfkv/internal/bar"
	"github.com/fbfkv/fbfkv/store"
)

const help = `Checks a data directory, or a backup, that no server has open, without changing
it. Compares every block of every sstable, every record of the op log, every filter
snapshot and every counter with its checksums and with the others. Prints what is
wrong and what to do. The exit status is 0 if the directory is sound, otherwise 1.`

// New returns the subcommand.
func New() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check DIR",
		Short: "check a data directory or a backup",
		Long:  help,
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			_, err := Run(args[0], args[0], cmd.OutOrStdout(), cmd.ErrOrStderr())
			return err
		},
	}
	cmd.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
		fmt.Fprintf(cmd.OutOrStdout(), "%s\n\n%s", cmd.Long, cmd.UsageString())
	})
	return cmd
}

// Run examines dir, which is called by a name, reports on stdout and draws its progress on stderr. The
// error says that something is wrong, or that dir could not be examined.
func Run(dir, name string, stdout, stderr io.Writer) (store.CheckReport, error) {
	progress := bar.New(stderr)
	r, err := store.Check(store.CheckOptions{Dir: dir, Progress: func(stage string, done, total int64) {
		progress.Set("checking "+stage, stage == "sstables", done, total)
	}})
	progress.Clear()
	if err != nil {
		return r, err
	}
	for _, n := range r.Notes {
		fmt.Fprintf(stdout, "note: %s\n", n)
	}
	for _, p := range r.Problems {
		fmt.Fprintf(stdout, "problem: %s: %s\n         %s\n", p.Where, p.What, p.Do)
	}
	if n := len(r.Problems); n > 0 {
		noun := "problems"
		if n == 1 {
			noun = "problem"
		}
		return r, fmt.Errorf("%s has %d %s", name, n, noun)
	}
	fmt.Fprintf(stdout, "%s is sound: %d keys in %d partitions; %d sections of the op log with %d entries, %d rows, %d runs with %d records, "+
		"%d snapshots with %d filters, %d sstables with %d bytes\n",
		name, r.Keys, r.Partitions, r.Sections, r.Entries, r.Rows, r.Runs, r.RunRecords, r.Snapshots, r.Filters, r.Sstables, r.TableBytes)
	fmt.Fprintf(stdout, "it is %x, incarnation %016x\n", r.Meta.ID, r.Meta.Incarnation)
	return r, nil
}
