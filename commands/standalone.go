package commands

// What a Redis that stands alone answers to questions about replication, a
// cluster and modules.

const (
	clusterDisabled = "This instance has cluster support disabled"
	noReplication   = "replication is not supported"
)

// doReplicaOf is REPLICAOF host port; NO ONE is what this server is anyway.
func doReplicaOf(c *Context) {
	if is(c.Args[1], "NO") && is(c.Args[2], "ONE") {
		c.W.Status("OK")
		return
	}
	c.fail(refusal("ERR " + noReplication))
}

// replicaOf declares REPLICAOF under one of its names.
func replicaOf(name string) Command {
	return Command{
		Name: name, Arity: 3, Flags: Admin | NoScript | Stale | NoAsyncLoading, Group: groupServer, Since: replicaOfSince[name],
		Complexity: "O(1)", Summary: "Accepts NO ONE; replication is not supported.",
		Args: []Arg{strArg("host"), strArg("port")}, Run: doReplicaOf,
	}
}

var replicaOfSince = map[string]string{"replicaof": "5.0.0", "slaveof": "1.0.0"}

// standaloneCommands are about what this server is not.
var standaloneCommands = []Command{
	replicaOf("replicaof"),
	replicaOf("slaveof"),
	{
		Name: "module", Arity: -2, Group: groupServer, Since: "4.0.0", Complexity: "Depends on subcommand.",
		Summary: "A container for commands on modules, of which there are none.",
		Subcommands: []Command{
			{
				Name: "list", Arity: 2, Flags: Admin | NoScript, Group: groupServer, Since: "4.0.0",
				Complexity: "O(N) where N is the number of loaded modules.", Tips: []string{"nondeterministic_output_order"},
				Summary: "Returns nothing: there are no modules.", Run: func(c *Context) { c.W.Array(0) },
			},
			helpFor("module", groupServer),
		},
	},
}
