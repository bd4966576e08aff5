// Package backup is the command `fbfkv backup`: it asks a running server for a
// consistent copy of its data directory and waits for it.
package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/fbfkv/fbfkv/cmd/fbfkv/internal/bar"
	"github.com/fbfkv/fbfkv/cmd/fbfkv/internal/connect"
	"github.com/fbfkv/fbfkv/cmd/fbfkv/internal/info"
)

// options are the command's flags.
type options struct {
	host   string
	port   int
	server connect.Flags
}

const help = `Asks a running server on this machine for a consistent copy of its data directory
(command BACKUP) and waits until it is complete. Clients go on meanwhile. DIR must
be empty or not exist; the server's user needs permission to create it. On the same
file system most of the copy consists of links, so it is quick and small.

The user needs permission to run BACKUP. Set the password in the environment
variable ` + connect.PasswordVariable + `, as for redis-cli: there, other users cannot see it.

fbfkv check DIR checks the copy, fbfkv restore DIR NEW makes a data directory from
it. A copy on the same disk is lost with that disk: copy it to another machine.`

// New returns the subcommand.
func New() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "backup [--host H] [--port P] " + connect.Usage + " DIR",
		Short: "copy the data directory of a running server",
		Long:  help,
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.run(args[0], cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	cmd.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
		fmt.Fprintf(cmd.OutOrStdout(), "%s\n\n%s", cmd.Long, cmd.UsageString())
	})
	cmd.Flags().StringVar(&o.host, "host", "127.0.0.1", "the server's address")
	cmd.Flags().IntVar(&o.port, "port", 6379, "the server's port")
	o.server.Add(cmd.Flags())
	return cmd
}

func (o *options) run(dir string, stdout, stderr io.Writer) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	addr := net.JoinHostPort(o.host, strconv.Itoa(o.port))
	asking, err := o.server.Client(addr, -1)
	if err != nil {
		return err
	}
	defer asking.Close()
	watching, err := o.server.Client(addr, -1)
	if err != nil {
		return err
	}
	defer watching.Close()
	ctx, began := context.Background(), time.Now()
	done := make(chan error, 1)
	go func() { done <- asking.Do(ctx, "BACKUP", dir).Err() }()
	progress := bar.New(stderr)
	for {
		select {
		case err := <-done:
			progress.Clear()
			if err != nil {
				return explain(dir, err)
			}
			fmt.Fprintf(stdout, "backed up to %s in %.1f s\n", dir, time.Since(began).Seconds())
			return nil
		case <-time.After(200 * time.Millisecond):
			// Not knowing how far the server is does not matter.
			if text, err := watching.Info(ctx, "persistence").Result(); err == nil {
				show(progress, text)
			}
		}
	}
}

// show draws what INFO persistence says of the backup.
func show(progress *bar.Bar, text string) {
	fields := info.Parse(text)
	if stage := fields["backup_stage"]; stage != "" {
		progress.Set(stage, stage == "copy", int64(fields.Number("backup_done")), int64(fields.Number("backup_total")))
	}
}

// explain says what an error means for the copy.
func explain(dir string, err error) error {
	var reply redis.Error
	if errors.As(err, &reply) {
		return fmt.Errorf("the server made no backup: %w", err)
	}
	return fmt.Errorf("the connection failed: %w (if %s appears anyway, it is complete)", err, dir)
}
