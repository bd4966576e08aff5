// Package check is the command `fbfkv check`: it examines a data directory, or
// a backup, that no server has open, and says in plain words what is wrong.
package check

import (
	"fmt"
	"io"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/fbfkv/fbfkv/cmd/fbfkv/internal/bar"
	"github.com/fbfkv/fbfkv/store"
)

const help = `Checks a data directory, or a backup, that no server has open, without changing
it. Compares every block of every sstable, every record of the op log, every filter
snapshot and every counter with its checksums and with the others. Prints each
problem and what to do. The exit status is 0 if the directory is sound, otherwise 1.

With --drop-unreadable it deletes the filters and sketches that cannot be read, as DEL
does, if nothing else is wrong. Their content is lost: look first for it in a backup.
It refuses to change a backup, which stays as it was verified.`

// New returns the subcommand.
func New() *cobra.Command {
	var drop bool
	cmd := &cobra.Command{
		Use:   "check [--drop-unreadable] DIR",
		Short: "check a data directory or a backup",
		Long:  help,
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := Run(args[0], args[0], cmd.OutOrStdout(), cmd.ErrOrStderr())
			if drop && r.OnlyUnreadable() {
				return dropUnreadable(args[0], cmd.OutOrStdout())
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&drop, "drop-unreadable", false, "delete the keys whose filter or sketch "+
		"cannot be read")
	return cmd
}

// dropUnreadable deletes the keys that cannot be read.
func dropUnreadable(dir string, stdout io.Writer) error {
	dropped, err := store.DropUnreadable(store.Options{Dir: dir, Logger: slog.New(slog.DiscardHandler)})
	for _, u := range dropped {
		fmt.Fprintf(stdout, "dropped: key %q\n", u.Key)
	}
	return err
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
		return r, fmt.Errorf("%s has %s", name, counted(n, "problem"))
	}
	fmt.Fprintf(stdout, "%s is sound: %s in %s; %s of the op log (entries: %d), %s, %s with %s, %s with "+
		"%s, %s of sketches, %s with %s\n",
		name, counted(r.Keys, "key"), counted(r.Partitions, "partition"), counted(r.Sections, "section"),
		r.Entries,
		counted(r.Rows, "row"), counted(r.Runs, "run"), counted(r.RunRecords, "record"),
		counted(r.Snapshots, "snapshot"),
		counted(r.Filters, "filter"), counted(r.Pages, "page"), counted(r.Sstables, "sstable"),
		counted(r.TableBytes, "byte"))
	fmt.Fprintf(stdout, "it is %x, incarnation %016x\n", r.Meta.ID, r.Meta.Incarnation)
	return r, nil
}

// counted returns a number with its noun, as in "1 key" and "2 keys".
func counted[N int | int64 | uint64](n N, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprint(n, " ", noun, "s")
}
