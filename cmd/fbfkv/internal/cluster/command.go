// Package cluster is the command `fbfkv cluster`: it makes a cluster of running servers and
// looks after it. It speaks to their ports for clients, with the verbs of
// CLUSTER FBFKV (package cluster of the server); what must be done in order and may be
// interrupted anywhere is here, and each verb can be sent again.
package cluster

import (
	"github.com/spf13/cobra"

	"github.com/fbfkv/fbfkv/cmd/fbfkv/internal/connect"
	"github.com/fbfkv/fbfkv/cmd/fbfkv/internal/operate"
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
type operator struct{ *operate.Operator }

// run makes a subcommand's function of one for an operator of clusters.
func run(do func(o *operator, args []string) error) func(*operate.Operator, []string) error {
	return func(o *operate.Operator, args []string) error { return do(&operator{o}, args) }
}

// New returns the command with its subcommands.
func New() *cobra.Command {
	return operate.Command{Name: "cluster", Short: "make a cluster of servers and look after it", Long: help,
		Patience: "a node or a leader", Subcommands: []operate.Subcommand{createCommand(), statusCommand(),
			addCommand(), removeCommand(), replaceCommand(), moveCommand(), rebalanceCommand(),
			backupCommand(), restoreCommand(), recoverCommand(), localCommand()}}.New()
}
