package main

// metaMutants break the meta group, and what shards know of each other.
var metaMutants = []mutant{
	{
		guarantee: "G5", name: "of two changes of the configuration at a time the last one counts",
		file:     "cluster/meta.go",
		old:      "now.Version > 0 && c.Follows(now) != nil {",
		new:      "now.Version > c.Version {",
		packages: "./cluster", tests: "TestMetaChangesAtOnce|TestChangeIsReadWithDistrust",
	},
	{
		guarantee: "G5", name: "a node whose beginning was interrupted never begins its shard",
		file:     "cluster/meta.go",
		old:      "	if err := stable.SetUint64([]byte(termValue), 0); err != nil {\n		return err\n	}\n",
		new:      "",
		packages: "./cluster", tests: "TestBeginningIsInterrupted",
	},
	{
		guarantee: "G5", name: "a lost node votes in the meta group for ever",
		file:     "cluster/meta.go",
		old:      "	return id != m.o.ID && time.Since(m.ledSince) > m.o.Lost",
		new:      "	return false && time.Since(m.ledSince) > m.o.Lost",
		packages: "./cluster", tests: "TestMetaVoterIsReplaced",
	},
	{
		guarantee: "G5", name: "the voters of the meta group are on one host",
		file:     "cluster/meta.go",
		old:      "cmp.Compare(onHost[a.Host], onHost[b.Host]), ",
		new:      "",
		packages: "./cluster", tests: "TestMetaVoters",
	},
	{
		guarantee: "G5", name: "a node votes in the meta group before it has the log",
		file:     "cluster/meta.go",
		old:      "	return time.Since(p.Contact) <= m.o.Timeout && p.Index > 0 && p.Index >= m.raft.CommitIndex()\n",
		new:      "	return p.Index == p.Index\n",
		packages: "./cluster", tests: "TestMetaWaitsForTheLog",
	},
	{
		guarantee: "G5", name: "the former leader of a shard is believed",
		file:     "cluster/leaders.go",
		old:      "	if said.Term < was.Term {\n		l.mu.Unlock()\n		return\n	}\n",
		new:      "",
		packages: "./cluster", tests: "TestLeaders",
	},
	{
		guarantee: "G5", name: "a node is believed who leads another shard",
		file:     "cluster/leaders.go",
		old:      "m == nil || said.Node != from.Node || said.Shard != m.Shard {",
		new:      "m == nil {",
		packages: "./cluster", tests: "TestLeaders",
	},
	{
		guarantee: "G5", name: "create ends before the meta group survives the loss of a node",
		file:     "cmd/fbfkv/internal/cluster/create.go",
		old:      "	if err := c.settle(c.addrs[0]); err != nil {\n		return err\n	}\n",
		new:      "",
		packages: "./integration_test", tests: "TestClusterLifecycle",
	},
	{
		guarantee: "G5", name: "a change of a cluster finds no leader that has joined since it began",
		file:     "cmd/fbfkv/internal/cluster/remote.go",
		old:      "		refresh(c, all...)\n",
		new:      "",
		packages: "./integration_test", tests: "TestLeaderIsFound",
	},
	{
		guarantee: "G5", name: "a node that begins anew at its address never takes part in the meta group",
		file:     "cluster/meta.go",
		old:      "		case before >= 0: //",
		new:      "		case false: //",
		packages: "./cluster", tests: "TestMetaAddressIsTakenOver",
	},
	{
		guarantee: "G5", name: "a change is refused by what a node does not know yet",
		file:     "cluster/metachange.go",
		old:      "err != nil && caughtUp ||",
		new:      "err != nil && (caughtUp || true) ||",
		packages: "./cluster", tests: "TestMetaChangeOfWhatIsNew",
	},
}
