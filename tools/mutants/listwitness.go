package main

// witnessMutants break what nodes remember of each other, so that a directory that went back in time
// is not taken for what it was.
var witnessMutants = []mutant{
	{
		guarantee: "R9", name: "the end of a directory's log does not count",
		file:     "cluster/witness.go",
		old:      "	return starts >= p.Starts && end.compare(must) >= 0\n",
		new:      "	return starts >= p.Starts\n",
		packages: "./cluster", tests: "TestPast$|TestOlderDirectoryIsKnownAtOnce",
	},
	{
		guarantee: "R9", name: "the number of a start does not count",
		file:     "cluster/witness.go",
		old:      "	return starts >= p.Starts && end.compare(must) >= 0\n",
		new:      "	return end.compare(must) >= 0\n",
		packages: "./cluster", tests: "TestPast$|TestOldStartIsRefused",
	},
	{
		guarantee: "R9", name: "what a node acknowledged since its start counts against the log that it started with",
		file:     "cluster/witness.go",
		old:      "	if starts > p.Starts {\n		must",
		new:      "	if starts >= p.Starts {\n		must",
		packages: "./cluster", tests: "TestPast$|TestNoFalseRefusal",
	},
	{
		guarantee: "R9", name: "a longer log of an earlier term counts for more",
		file:     "cluster/witness.go",
		old:      "	return cmp.Or(cmp.Compare(p.Term, o.Term), cmp.Compare(p.Index, o.Index))\n",
		new:      "	return cmp.Compare(p.Index, o.Index)\n",
		packages: "./cluster", tests: "TestPast$",
	},
	{
		guarantee: "R9", name: "a leader tells nobody what the others have acknowledged",
		file:     "cluster/aside.go",
		old:      "	if !changed || err != nil {\n",
		new:      "	if true {\n",
		packages: "./cluster", tests: "TestOlderDirectory$",
	},
	{
		guarantee: "R9", name: "a leader goes by what it has told when a node shows itself",
		file:     "cluster/node.go",
		old:      "		w.refreshBy(n.noteProgress)\n",
		new:      "",
		packages: "./cluster", tests: "TestOlderDirectoryIsKnownAtOnce",
	},
	{
		guarantee: "R9", name: "nobody hears what a leader tells of the others",
		file:     "cluster/fsm.go",
		old:      "				w.Learn(id, p)\n",
		new:      "				_, _ = id, p\n",
		packages: "./cluster", tests: "TestOlderDirectory$",
	},
	{
		guarantee: "R9", name: "starts are not numbered",
		file:     "cluster/stable.go",
		old:      "		number++\n",
		new:      "",
		packages: "./cluster", tests: "TestOldStartIsRefused",
	},
	{
		guarantee: "R9", name: "a node whose directory is older takes part",
		file:     "cluster/aside.go",
		old:      "		n.StandAside(errOlder)\n",
		new:      "",
		packages: "./cluster", tests: "TestOlderDirectory$",
	},
	{
		guarantee: "R9", name: "a node that never dials does not hear that its directory is older",
		file:     "cluster/net.go",
		old:      "		n.tellOlder(node, address, kind, err)\n",
		new:      "",
		packages: "./cluster", tests: "TestWipedDirectory",
	},
	{
		guarantee: "R9", name: "a node that has what its shard lost ends",
		file:     "cluster/logstore.go",
		old:      "s.Lost != nil && lo > first",
		new:      "s.Lost == nil && lo > first",
		packages: "./cluster", tests: "TestKeepsWhatIsLost",
	},
	{
		guarantee: "R9", name: "an entry that tells of the others is told of",
		file:     "cluster/aside.go",
		old:      "			index-- // that was",
		new:      "			// that was",
		packages: "./cluster", tests: "TestIdleShardTellsNothing",
	},
}
