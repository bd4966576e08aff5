package restore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/fbfkv/fbfkv/cmd/fbfkv/internal/connect"
	"github.com/fbfkv/fbfkv/store"
)

const verifyHelp = `Tests a backup: restores it aside, checks every byte, opens it as a server does, compares
the number of keys with the counts of check and of the server when it made the stream, and
removes the restored files. BACKUP is a directory, or - for a stream on standard input. The
exit status is 0 if the backup is good.

It needs room for the backup in the directory for temporary files (TMPDIR).

With HOST:PORT it tells that server, which made the stream, that its backup of that time is good.
INFO's backup_last_success_time, the metric fbfkv_backup_last_success_timestamp_seconds
and the alert FbfkvNoBackup depend on that.`

// NewVerify returns the subcommand verify.
func NewVerify() *cobra.Command {
	var login connect.Flags
	cmd := &cobra.Command{
		Use:   "verify [HOST:PORT] BACKUP|- " + connect.Usage,
		Short: "test whether a backup can be restored",
		Long:  verifyHelp,
		Args:  cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			from, addr := args[0], ""
			if len(args) == 2 {
				from, addr = args[1], args[0]
			}
			if addr != "" && from != "-" {
				return errors.New("only a stream (-) needs HOST:PORT: BACKUP DIR has recorded its " +
					"copy already")
			}
			return verify(from, addr, &login, cmd)
		},
	}
	login.Add(cmd.Flags())
	return cmd
}

func verify(from, addr string, login *connect.Flags, cmd *cobra.Command) error {
	aside, err := os.MkdirTemp("", "fbfkv-verify-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(aside)
	dir := filepath.Join(aside, "data")
	r, err := restore(from, dir, "it is no good backup; keep an older one, and find out what damaged it", cmd)
	if err != nil {
		return err
	}
	keys, err := open(dir)
	if err != nil {
		return fmt.Errorf("a server cannot open it: %w", err)
	}
	if keys != r.keys {
		return fmt.Errorf("a server finds %d keys in it, and check %d", keys, r.keys)
	}
	if r.unreadable > 0 {
		return fmt.Errorf("it can be restored, but %d of its keys cannot be read: they are named above",
			r.unreadable)
	}
	if r.info == nil {
		fmt.Fprintf(cmd.OutOrStdout(), "the backup is good; it has %d keys\n", keys)
		return nil
	}
	if err := compare(keys, r.info); err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "the backup of %s is good; it has %d keys, and the server had %d "+
		"before it was made and %d after\n",
		r.info.At.Format(time.DateTime), keys, r.info.Before.Keys, r.info.After.Keys)
	if addr == "" {
		return nil
	}
	return report(addr, login, r.info, cmd.OutOrStdout())
}

// open opens a data directory as a server does, and says how many keys it has.
func open(dir string) (keys int64, err error) {
	s, err := store.Open(store.Options{Dir: dir, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return 0, err
	}
	return s.Stats().Recovery.Keys, s.CloseNow()
}

// compare says whether a number of keys can be right: each outcome that was logged while
// the copy was made changes it by one at most, or is a FLUSHALL.
func compare(keys int64, info *store.StreamInfo) error {
	before, after := info.Before.Keys, info.After.Keys
	slack := int64(min(info.After.Entries-min(info.Before.Entries, info.After.Entries), 1<<62))
	if keys < min(before, after)-slack || keys > max(before, after)+slack {
		return fmt.Errorf("it has %d keys, but the server had %d before it was made and %d after", keys,
			before, after)
	}
	return nil
}

// report tells the server that made a stream that it is good.
func report(addr string, login *connect.Flags, info *store.StreamInfo, stdout io.Writer) error {
	client, err := login.Client(addr, 10*time.Second)
	if err != nil {
		return err
	}
	defer client.Close()
	if err := client.Do(context.Background(), "BACKUP", "VERIFIED", fmt.Sprintf("%x", info.ID),
		info.At.UnixMilli()).Err(); err != nil {
		return fmt.Errorf("the backup is good, but %s could not be told: %w", addr, err)
	}
	fmt.Fprintf(stdout, "%s was told\n", addr)
	return nil
}
