package main

// arrivalMutants break how the nodes of two shards move a partition between them.
var arrivalMutants = []mutant{
	{
		guarantee: "G2", name: "what is left of a partition that went is taken for one that has arrived",
		file:     "cluster/arrival.go",
		old:      "	return number == 0 && st.Adopted(a.p) > 0\n",
		new:      "	return number >= 0 && st.Adopted(a.p) > 0\n",
		packages: "./cluster", tests: "TestPartitionComesBackAtOnce",
	},
	{
		guarantee: "G2", name: "a partition that is to come back is not deleted before",
		file:     "cluster/move.go",
		old:      "		case owner == m.o.Shard && c.Move(p) != nil: // it is on its way\n",
		new:      "		case c.Move(p) != nil: // it is on its way\n",
		packages: "./cluster", tests: "TestPartitionComesBackAtOnce",
	},
	{
		guarantee: "G2", name: "the late end of a move ends a later one",
		file:     "cluster/config.go",
		old:      "	i := slices.Index(c.Moves, m)\n",
		new:      "	i := slices.IndexFunc(c.Moves, func(o Move) bool { return o.Partition == m.Partition && o.To == m.To })\n",
		packages: "./cluster", tests: "TestMoveEndsOnce",
	},
	{
		guarantee: "G2", name: "what was received is not taken up after a start",
		file:     "cluster/arrival.go",
		old:      "	if err == nil && to > 0 {\n",
		new:      "	if err == nil && to > 1<<63 {\n",
		packages: "./cluster", tests: "TestReceivedIsKept",
	},
	{
		guarantee: "G2", name: "a replica counts for an adoption that lacks the end of the partition",
		file:     "cluster/arrival.go",
		old:      "r.to == to && r.last >= last:\n",
		new:      "r.to == to && r.last > 0:\n",
		packages: "./cluster", tests: "TestMajorityHasIt",
	},
	{
		guarantee: "G2", name: "a replica counts for an adoption that has the partition of another move",
		file:     "cluster/arrival.go",
		old:      "r.to == to && r.last >= last:\n",
		new:      "(r.to == to || true) && r.last >= last:\n",
		packages: "./cluster", tests: "TestMajorityHasIt",
	},
	{
		guarantee: "G8", name: "views are saved by a replica that could not redo an adoption",
		file:     "cluster/node.go",
		old:      "	if undecided || swaps || n.files.lacks.Load() {\n",
		new:      "	if undecided || swaps {\n",
		packages: "./cluster", tests: "TestAdoptionIsNotReceived",
	},
	{
		guarantee: "R4", name: "entries behind an adoption that was not redone are applied",
		file:     "cluster/fsm.go",
		old:      "	if n.files.lacks.Load() {\n		return nil // an entry before could not be applied\n	}\n",
		new:      "",
		packages: "./cluster", tests: "TestAdoptionIsNotReceived",
	},
	{
		guarantee: "R8", name: "a replica leads on that cannot redo an adoption",
		file:     "cluster/catchupnode.go",
		old:      "			case n.raft.State() == raft.Leader:\n				n.transport.RefuseEntries(false)\n				n.passOn()\n",
		new:      "",
		packages: "./cluster", tests: "TestAdoptionOutlivesItsLeader",
	},
	{
		guarantee: "R9", name: "the files that a replica is given lack what was applied last",
		file:     "cluster/catchupnode.go",
		old:      "	if err = n.log.Sync(); err == nil { // so",
		new:      "	if err == nil { // so",
		packages: "./cluster", tests: "TestAdoptionOutlivesItsLeader",
	},
}
