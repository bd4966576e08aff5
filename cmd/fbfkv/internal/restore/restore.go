// Package restore is the command `fbfkv restore`: it makes a new data directory
// of a backup.
package restore

import (
	"fmt"
	"io"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/fbfkv/fbfkv/cmd/fbfkv/internal/bar"
	"github.com/fbfkv/fbfkv/cmd/fbfkv/internal/check"
	"github.com/fbfkv/fbfkv/store"
)

const help = `Checks a backup as fbfkv check does and, if it is sound, copies it to DIR, which must
be empty or not exist. DIR appears only when it is complete and on disk. The backup
does not change and can be restored again. Then start a server with --dir DIR.`

// New returns the subcommand.
func New() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "restore BACKUP DIR",
		Short: "make a data directory from a backup",
		Long:  help,
		Args:  cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return run(args[0], args[1], cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	cmd.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
		fmt.Fprintf(cmd.OutOrStdout(), "%s\n\n%s", cmd.Long, cmd.UsageString())
	})
	return cmd
}

func run(backup, dir string, stdout, stderr io.Writer) error {
	backup, err := filepath.Abs(backup)
	if err != nil {
		return err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return err
	}
	if err := check.Run(backup, stdout, stderr); err != nil {
		return fmt.Errorf("not restored: %w", err)
	}
	progress := bar.New(stderr)
	err = store.Restore(backup, dir, func(done, total int64) { progress.Set("copying", true, done, total) })
	progress.Clear()
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "%s is restored to %s\n", backup, dir)
	return nil
}
