package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fbfkv/fbfkv/cmd/fbfkv/internal/reference"
)

// newRootCommand returns the command line: the server itself; subcommands are
// added here.
func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "fbfkv [/path/to/fbfkv.conf] [--setting value ...]",
		Version:       versionNumber(),
		Args:          atMostOneFile,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetHelpCommand(&cobra.Command{Hidden: true})
	root.SetVersionTemplate(versionLine() + "\n")
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
		fmt.Fprint(cmd.OutOrStdout(), helpText())
	})
	root.Flags().SortFlags = false
	flags := addSettings(root.Flags())
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		var bad *pflag.InvalidValueError
		if errors.As(err, &bad) {
			err = fmt.Errorf("--%s: %w", bad.GetFlag().Name, bad.Unwrap()) // without the value: it may be a password
		}
		return fmt.Errorf("%w (fbfkv --help lists the settings)", err)
	})
	root.RunE = func(cmd *cobra.Command, args []string) error {
		file := ""
		if len(args) == 1 {
			file = args[0]
		}
		config, err := flags.config(file)
		if err != nil {
			return err
		}
		return serve(config, file, cmd.ErrOrStderr())
	}
	addOffline(root)
	root.AddCommand(reference.New())
	return root
}

// atMostOneFile refuses a second argument that is no flag.
func atMostOneFile(_ *cobra.Command, args []string) error {
	if len(args) > 1 {
		return fmt.Errorf("one configuration file at most, not %q and %q (fbfkv --help shows how to set things)", args[0], args[1])
	}
	return nil
}
