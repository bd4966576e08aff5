// Package backup is the command `fbfkv backup`: it asks a running server for a
// consistent copy of its data directory and waits for it.
package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/fbfkv/fbfkv/cmd/fbfkv/internal/bar"
	"github.com/fbfkv/fbfkv/cmd/fbfkv/internal/connect"
	"github.com/fbfkv/fbfkv/cmd/fbfkv/internal/info"
)

const help = `Asks a running server for a consistent copy of its data (command BACKUP) and waits until
it is complete. Clients are served meanwhile.

To DIR, below the server's backup-dir on its machine: DIR must be empty or not exist. On
the same file system most of the copy consists of links, so it is quick and small. A copy
on the same disk is lost with that disk.

To - (standard output), from anywhere: a stream of bytes, for any other program:

  fbfkv backup - | zstd | aws s3 cp - s3://bucket/fbfkv.tar.zst

The user needs permission to run BACKUP. Set the password in the environment
variable ` + connect.PasswordVariable + `, as for redis-cli: there, other users cannot see it.

fbfkv verify tests whether a backup can be restored, fbfkv restore makes a data directory
from it.`

// New returns the subcommand.
func New() *cobra.Command {
	var login connect.Flags
	cmd := &cobra.Command{
		Use:   "backup [HOST:PORT] DIR|- " + connect.Usage,
		Short: "copy the data of a running server",
		Long:  help,
		Args:  cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			addr, args := connect.Server(args, 1)
			return backUp(addr, args[0], &login, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	login.Add(cmd.Flags())
	return cmd
}

func backUp(addr, target string, login *connect.Flags, stdout, stderr io.Writer) error {
	asking, err := login.Client(addr, 0)
	if err != nil {
		return err
	}
	defer asking.Close()
	watching, err := login.Client(addr, 0)
	if err != nil {
		return err
	}
	defer watching.Close()
	began := time.Now()
	if target == "-" {
		if file, ok := stdout.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
			return errors.New("a backup is not for a terminal: redirect the output to a program or a file")
		}
		var size int64
		err := await(watching, stderr, func() (err error) {
			size, err = stream(asking, stdout)
			return err
		})
		if err == nil {
			fmt.Fprintf(stderr, "sent %d bytes in %.1f s\n", size, time.Since(began).Seconds())
		}
		return err
	}
	var dir string
	err = await(watching, stderr, func() (err error) {
		dir, err = asking.Do(context.Background(), "BACKUP", target).Text()
		return explain(err)
	})
	if err != nil {
		if !connect.IsReply(err) {
			err = fmt.Errorf("%w (if the directory appears anyway, it is complete)", err)
		}
		return err
	}
	fmt.Fprintf(stdout, "backed up to %s in %.1f s\n", dir, time.Since(began).Seconds())
	return nil
}

// stream writes the server's data to out, and returns how many bytes there were.
func stream(client *connect.Client, out io.Writer) (size int64, err error) {
	// the stream is this connection's
	err = client.With(context.Background(), func(conn *connect.Conn) error {
		for next := "-"; ; next = "NEXT" {
			piece, err := conn.Do("BACKUP", next).Text()
			if err != nil || piece == "" {
				return explain(err)
			}
			n, err := io.WriteString(out, piece)
			size += int64(n)
			if err != nil {
				return err
			}
		}
	})
	if err != nil {
		return size, err
	}
	if closer, ok := out.(io.Closer); ok {
		return size, closer.Close() // a disk may notice only now that it is full
	}
	return size, nil
}

// await does the work and shows meanwhile what INFO persistence says of it.
func await(watching *connect.Client, stderr io.Writer, work func() error) error {
	done := make(chan error, 1)
	go func() { done <- work() }()
	progress := bar.New(stderr)
	defer progress.Clear()
	for {
		select {
		case err := <-done:
			return err
		case <-time.After(200 * time.Millisecond):
			// Not knowing how far the server is does not matter.
			text, err := watching.Do(context.Background(), "INFO", "persistence").Text()
			if err != nil {
				continue
			}
			fields := info.Parse(text)
			if stage := fields["backup_stage"]; stage != "" {
				progress.Set(stage, stage != "snapshots", int64(fields.Number("backup_done")),
					int64(fields.Number("backup_total")))
			}
		}
	}
}

// explain says whether the server has answered.
func explain(err error) error {
	switch {
	case err == nil:
		return nil
	case connect.IsReply(err):
		return fmt.Errorf("the server made no backup: %w", err)
	}
	return fmt.Errorf("the connection failed: %w", err)
}
