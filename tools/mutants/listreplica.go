package main

// replicaMutants break the rules R1 to R9 of a replicated shard.
var replicaMutants = []mutant{
	{
		guarantee: "R3", name: "another's decision is put on top of one that is not committed",
		file:     "store/replica.go",
		old:      "	if p.committed.upTo() < p.seq { // R3\n",
		new:      "	if false { // R3\n",
		packages: "./store", tests: "TestReplicaConflict",
	},
	{
		guarantee: "R4", name: "a section whose sequence is not higher counts as known",
		file:     "store/replica.go",
		old:      "	if seq <= p.recovered { // R4\n",
		new:      "	if seq <= p.seq { // R4\n",
		packages: "./store", tests: "TestReplicaContainedOrGap",
	},
	{
		guarantee: "R4", name: "a section that recovery began with is redone",
		file:     "store/recover.go",
		old:      "	p.recovered = p.seq\n",
		new:      "",
		packages: "./store", tests: "TestReplicaContainedOrGap",
	},
	{
		guarantee: "R5", name: "a replica without tables is asked",
		file:     "store/execute.go",
		old:      "		if s.replica != nil && (!s.replica.ready.Load() || b.Replica && op.Kind.Write()) {\n",
		new:      "		if s.replica != nil && b.Replica && op.Kind.Write() {\n",
		packages: "./store", tests: "TestReplica$",
	},
	{
		guarantee: "R6", name: "a new leader does not begin its clock where the log ends",
		file:     "store/replica.go",
		old:      "	for _, p := range s.partitions {\n		s.startClock(p)\n	}\n",
		new:      "",
		packages: "./store", tests: "TestReplica$",
	},
	{
		guarantee: "R7", name: "what was taken back is answered as if nobody knew",
		file:     "store/partition.go",
		old:      "		return ErrNotLeader // only a replica takes back\n",
		new:      "		return ErrUndecided // only a replica takes back\n",
		packages: "./store", tests: "TestLives|TestReplicaConflict|TestRebuildBetweenPieces",
	},
	{
		guarantee: "R7", name: "who gave up once gives up for ever",
		file:     "store/replica.go",
		old:      "		p.committed.resume()\n",
		new:      "",
		packages: "./store", tests: "TestReplicaGivesUp",
	},
	{
		guarantee: "R2", name: "an entry of an earlier term is redone",
		file:     "cluster/fsm.go",
		old:      "		case c.fence != l.Term: // R2\n",
		new:      "		case false: // R2\n",
		packages: "./cluster", tests: "TestStaleEntry",
	},
	{
		guarantee: "R2", name: "an entry of an earlier term is redone by a start",
		file:     "cluster/command.go",
		old:      " || c.kind != commandSections || c.fence != e.Term {\n",
		new:      " || c.kind != commandSections {\n",
		packages: "./cluster", tests: "TestStaleEntry",
	},
	{
		guarantee: "R3", name: "what was not committed stays in memory",
		file:     "cluster/fsm.go",
		old:      "	if err := n.st.TakeBack(first); err != nil {\n",
		new:      "	if err := n.st.TakeBack(nil); err != nil {\n",
		packages: "./cluster", tests: "TestLeadsAgain",
	},
	{
		guarantee: "R5", name: "views are published that the next start cannot reach",
		file:     "persistence/oplog/entries.go",
		old:      "	if !behind {\n		return nil\n	}\n",
		new:      "	if true {\n		return nil\n	}\n",
		packages: "./cluster", tests: "TestViewsAreReached",
	},
	{
		guarantee: "R9", name: "a checkpoint keeps a cut waiting for what needs the cut",
		file:     "store/partition.go",
		old:      "		case saves && m.postponed:\n",
		new:      "		case false:\n",
		packages: "./store", tests: "TestCutNeedsNoCommit",
	},
}
