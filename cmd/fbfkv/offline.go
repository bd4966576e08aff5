package main

import (
	"github.com/spf13/cobra"

	"github.com/fbfkv/fbfkv/cmd/fbfkv/internal/backup"
	"github.com/fbfkv/fbfkv/cmd/fbfkv/internal/check"
	"github.com/fbfkv/fbfkv/cmd/fbfkv/internal/healthcheck"
	"github.com/fbfkv/fbfkv/cmd/fbfkv/internal/restore"
)

// addOffline adds the subcommands that look after data directories and servers.
func addOffline(root *cobra.Command) {
	root.AddCommand(check.New(), backup.New(), restore.New(), healthcheck.New())
}
