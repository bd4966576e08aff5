package main

import (
	"github.com/fbfkv/fbfkv/cmd/fbfkv/internal/paper"
	"github.com/spf13/cobra"
)

// addPaper adds the subcommand that makes the figures of the FBF paper again.
func addPaper(root *cobra.Command) { root.AddCommand(paper.New()) }
