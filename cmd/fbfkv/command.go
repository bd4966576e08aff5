package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fbfkv/fbfkv/server"
)

// newRootCommand returns the command line: the server itself; subcommands are
// added here.
func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "fbfkv [/path/to/fbfkv.conf] [--setting value ...]",
		Version:       versionNumber(),
		Args:          cobra.ArbitraryArgs, // see atMostOneFile
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetHelpCommand(&cobra.Command{Hidden: true})
	root.SetVersionTemplate(versionLine() + "\n")
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		switch {
		case cmd != root:
			fmt.Fprintf(cmd.OutOrStdout(), "%s\n\n%s", cmd.Long, cmd.UsageString())
		case slices.Contains(args, "settings"):
			fmt.Fprint(cmd.OutOrStdout(), settingsText())
		default:
			fmt.Fprint(cmd.OutOrStdout(), helpIntro)
		}
	})
	root.Flags().SortFlags = false
	flags := addSettings(root.Flags())
	checked := root.Flags().String("check-config", "", "")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		var bad *pflag.InvalidValueError
		if errors.As(err, &bad) {
			// without the value: it may be a password
			err = fmt.Errorf("--%s: %w", bad.GetFlag().Name, bad.Unwrap())
		}
		lists := "--help settings lists the settings"
		if cmd != root {
			lists = "--help lists the flags"
		}
		return fmt.Errorf("%w (%s %s)", err, cmd.CommandPath(), lists)
	})
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		if cmd.ValidateRequiredFlags() != nil {
			return usage(cmd)
		}
		return nil
	}
	root.RunE = func(cmd *cobra.Command, args []string) error {
		checkOnly := cmd.Flags().Changed("check-config")
		if checkOnly {
			if *checked == "" {
				return errors.New("--check-config needs a configuration file")
			}
			args = append(args, *checked)
		}
		if err := atMostOneFile(cmd, args); err != nil {
			return err
		}
		file := strings.Join(args, "")
		config, err := flags.config(file)
		switch {
		case err != nil:
			return err
		case checkOnly:
			return reportCheck(cmd.OutOrStdout(), file, config)
		}
		return serve(config, file, cmd.ErrOrStderr())
	}
	addOffline(root)
	return root
}

// reportCheck is the result of --check-config for a file without a fault.
func reportCheck(w io.Writer, file string, config *server.Config) error {
	if len(config.NoEffect) > 0 {
		fmt.Fprintf(w, "%s: without effect here: %s\n", file, strings.Join(config.NoEffect, ", "))
	}
	for _, warning := range config.Warnings() {
		fmt.Fprintf(w, "%s: warning: %s\n", file, warning)
	}
	_, err := fmt.Fprintf(w, "%s: ok\n", file)
	return err
}

// atMostOneFile refuses a second argument, other than flags.
func atMostOneFile(_ *cobra.Command, args []string) error {
	if len(args) > 1 {
		return fmt.Errorf("expected at most one configuration file, not %q and %q (see fbfkv --help)",
			args[0], args[1])
	}
	return nil
}
