package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/fbfkv/fbfkv/cmd/fbfkv/internal/backup"
	"github.com/fbfkv/fbfkv/cmd/fbfkv/internal/check"
	"github.com/fbfkv/fbfkv/cmd/fbfkv/internal/cluster"
	"github.com/fbfkv/fbfkv/cmd/fbfkv/internal/follow"
	"github.com/fbfkv/fbfkv/cmd/fbfkv/internal/healthcheck"
	"github.com/fbfkv/fbfkv/cmd/fbfkv/internal/region"
	"github.com/fbfkv/fbfkv/cmd/fbfkv/internal/restore"
	"github.com/fbfkv/fbfkv/cmd/fbfkv/internal/stream"
	"github.com/fbfkv/fbfkv/cmd/fbfkv/internal/top"
	"github.com/fbfkv/fbfkv/cmd/fbfkv/internal/transfer"
)

// addOffline adds the subcommands that look after data directories and servers.
func addOffline(root *cobra.Command) {
	for _, sub := range []*cobra.Command{check.New(), backup.New(), restore.New(), restore.NewVerify(),
		transfer.NewImport(), transfer.NewExport(),
		stream.New(), follow.New(), healthcheck.New(), top.New(), cluster.New(), region.New()} {
		sub.DisableFlagsInUseLine = true // the line names them
		sub.Args = orUsage(sub.Args)
		root.AddCommand(sub)
	}
}

// orUsage answers wrong arguments with how the subcommand is called.
func orUsage(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if check(cmd, args) != nil {
			return usage(cmd)
		}
		return nil
	}
}

// usage is the answer to arguments with which a subcommand cannot be called.
func usage(cmd *cobra.Command) error {
	return fmt.Errorf("usage: %s (%s --help tells more)", cmd.UseLine(), cmd.CommandPath())
}
