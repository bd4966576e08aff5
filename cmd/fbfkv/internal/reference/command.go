// Package reference renders the reference pages of docs from the tables that
// the server itself works with: docs/COMMANDS.md from the command table,
// docs/SETTINGS.md from the settings. `make docs` writes them; a test fails
// when they are stale.
package reference

import (
	"io"

	"github.com/spf13/cobra"
)

// New returns the subcommand docs, which prints a page. It serves whoever
// works on fbfkv and is hidden from its help.
func New() *cobra.Command {
	docs := &cobra.Command{Use: "docs", Short: "Print a page of the reference", Hidden: true,
		Args: cobra.NoArgs}
	for name, page := range map[string]func() string{"commands": Commands, "settings": Settings} {
		docs.AddCommand(&cobra.Command{
			Use: name, Short: "Print docs/" + name, Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				_, err := io.WriteString(cmd.OutOrStdout(), page())
				return err
			},
		})
	}
	return docs
}

// notice begins every page.
const notice = "<!-- Made by `make docs` from the declarations in the code. Do not edit. -->\n\n"
