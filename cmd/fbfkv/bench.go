package main

import (
	"github.com/fbfkv/fbfkv/cmd/fbfkv/internal/bench"
	"github.com/spf13/cobra"
)

// addBench adds the load generator.
func addBench(root *cobra.Command) { root.AddCommand(bench.New()) }
