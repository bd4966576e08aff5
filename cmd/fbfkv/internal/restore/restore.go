// Package restore is the commands `fbfkv restore`, which makes a new data directory of a
// backup, and `fbfkv verify`, which tries that aside.
package restore

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/fbfkv/fbfkv/cmd/fbfkv/internal/bar"
	"github.com/fbfkv/fbfkv/cmd/fbfkv/internal/check"
	"github.com/fbfkv/fbfkv/store"
)

const help = `Checks a backup as fbfkv check does and, if it is sound, copies it to DIR, which must
be empty or not exist. DIR appears only when it is complete and on disk. The rest of a
backup is restored even if a filter or sketch, which is named, cannot be read.
BACKUP is a directory, or - for a stream of fbfkv backup - on standard input:

  aws s3 cp s3://bucket/fbfkv.tar.zst - | zstd -d | fbfkv restore - DIR

The backup does not change and can be restored again. Then start a server with --dir DIR.`

// New returns the subcommand.
func New() *cobra.Command {
	return &cobra.Command{
		Use:   "restore BACKUP|- DIR",
		Short: "make a data directory from a backup",
		Long:  help,
		Args:  cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir, err := filepath.Abs(args[1])
			if err != nil {
				return err
			}
			if _, err := restore(args[0], dir, "not restored", cmd); err != nil {
				return err
			}
			from := args[0]
			if from == "-" {
				from = "the stream"
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s is restored to %s\n", from, dir)
			return nil
		},
	}
}

// restored is what is known of a backup that was restored.
type restored struct {
	keys int64 // as check counted them
	// unreadable is how many of them cannot be read. A server serves all others.
	unreadable int
	info       *store.StreamInfo // nil if it was a directory
}

// restore makes dir of a backup: a directory or, for -, the command's standard input. The error about a
// backup that is not sound begins with unsound.
func restore(from, dir, unsound string, cmd *cobra.Command) (r restored, err error) {
	stdout, stderr := cmd.OutOrStdout(), cmd.ErrOrStderr()
	progress := bar.New(stderr)
	name := from
	sound := func(dir string) error {
		progress.Clear()
		report, err := check.Run(dir, name, stdout, stderr)
		if err != nil && !report.OnlyUnreadable() {
			return fmt.Errorf("%s: %w", unsound, err)
		}
		r.keys, r.unreadable = report.Keys, len(report.Unreadable)
		return nil
	}
	if from == "-" {
		name = "the stream"
		info, err := store.RestoreStream(cmd.InOrStdin(), dir, sound, func(done, total int64) {
			progress.Set("receiving", true, done, total)
		})
		progress.Clear()
		r.info = &info
		return r, err
	}
	if from, err = filepath.Abs(from); err != nil {
		return r, err
	}
	if is, err := os.Stat(from); err == nil && is.Mode().IsRegular() {
		return r, fmt.Errorf("%s is a file: send a stream to standard input, with - for BACKUP (- <%s)", from, name)
	}
	if err := sound(from); err != nil {
		return r, err
	}
	err = store.Restore(from, dir, func(done, total int64) { progress.Set("copying", true, done, total) })
	progress.Clear()
	return r, err
}
