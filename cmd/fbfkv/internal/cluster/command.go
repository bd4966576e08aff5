// Package cluster is the command `fbfkv cluster`: it makes a cluster of running servers and
// looks after it. It speaks to their ports for clients, with the verbs of
// CLUSTER FBFKV (package cluster of the server); what must be done in order and may be
// interrupted anywhere is here, and each verb can be sent again.
package cluster

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fbfkv/fbfkv/cmd/fbfkv/internal/connect"
)

const help = `Makes a cluster of running servers and looks after it. Each server was started with
--cluster-enabled yes and an empty data directory, and is named by HOST:PORT, where
its clients reach it.

A cluster of three nodes loses nothing and goes on when any one of them is lost, a
cluster of five when any two are. Each command says what it is about to do and asks,
unless --yes is given; it shows each step and ends with status 0 only when all is done.
If it was interrupted, run it again: it goes on from there.

The user needs permission to run CLUSTER. Set the password in the environment
variable ` + connect.PasswordVariable + `, as for redis-cli: there, other users cannot see it.`

// operator is one run of a subcommand.
type operator struct {
	server   connect.Flags
	yes      bool
	patience time.Duration

	in          io.Reader
	out, stderr io.Writer
	nodes       map[string]*remote // by HOST:PORT
}

// subcommand is one of the commands.
type subcommand struct {
	use, short, long string
	args             cobra.PositionalArgs
	flags            func(cmd *cobra.Command)
	run              func(o *operator, args []string) error
}

// New returns the command with its subcommands.
func New() *cobra.Command {
	root := &cobra.Command{
		Use:   "cluster COMMAND",
		Short: "make a cluster of servers and look after it",
		Long:  help,
		Args:  cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			return fmt.Errorf("fbfkv cluster has no command %.40q (fbfkv cluster --help lists them)", args[0])
		},
	}
	var lines strings.Builder
	for _, s := range []subcommand{createCommand(), statusCommand(), addCommand(), removeCommand(), replaceCommand(), moveCommand(), rebalanceCommand(), backupCommand(),
		restoreCommand(), recoverCommand(), localCommand()} {
		cmd := s.command()
		root.AddCommand(cmd)
		fmt.Fprintf(&lines, "  %s\n      %s\n", s.use, s.short)
	}
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
		if cmd != root {
			fmt.Fprintf(cmd.OutOrStdout(), "%s\n\n%s", cmd.Long, cmd.UsageString())
			return
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%s\n\nCommands:\n%s\nfbfkv cluster COMMAND --help tells more.\n", help, lines.String())
	})
	return root
}

// command makes the command line of a subcommand.
func (s subcommand) command() *cobra.Command {
	o := &operator{nodes: map[string]*remote{}}
	cmd := &cobra.Command{Use: s.use + " [flags]", Short: s.short, Long: s.long}
	cmd.DisableFlagsInUseLine = true
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if s.args(cmd, args) != nil {
			return fmt.Errorf("usage: fbfkv cluster %s (fbfkv cluster %s --help tells more)", s.use, cmd.Name())
		}
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		o.in, o.out, o.stderr = cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()
		defer o.close()
		return s.run(o, args)
	}
	o.server.Add(cmd.Flags())
	cmd.Flags().BoolVar(&o.yes, "yes", false, "do not ask")
	cmd.Flags().DurationVar(&o.patience, "patience", time.Minute, "for how long to wait for a node or a leader")
	if s.flags != nil {
		s.flags(cmd)
	}
	return cmd
}

// errNotConfirmed: nothing was done.
var errNotConfirmed = errors.New("nothing was done: it was not confirmed; --yes does not ask")

// say prints a line about what is done.
func (o *operator) say(format string, args ...any) { fmt.Fprintf(o.out, format+"\n", args...) }

// confirm shows what will be done and asks whether to go on.
func (o *operator) confirm(plan ...string) error {
	for _, line := range plan {
		o.say("%s", line)
	}
	if o.yes {
		return nil
	}
	fmt.Fprint(o.out, `Type "yes" to go on: `)
	answer, _ := bufio.NewReader(o.in).ReadString('\n')
	if strings.TrimSpace(answer) != "yes" {
		fmt.Fprintln(o.out)
		return errNotConfirmed
	}
	return nil
}
