package main

// clusterMutants break what a partition needs so that its log can be replicated: clocks of
// its own, views that wait for the commit, a freeze of its own.
var clusterMutants = []mutant{
	{
		guarantee: "G1", name: "the window is shortened by a restart",
		file:     "store/clock.go",
		old:      "	if p.seq == 0 {\n		logged = wall\n	}\n",
		new:      "	logged = max(logged, wall)\n",
		packages: "./store", tests: "TestWallClockAgesNothing|TestDowntime",
	},
	{
		guarantee: "G7", name: "wall time goes back",
		file:     "store/clock.go",
		old:      "	return s.notBefore(wall), running\n",
		new:      "	return wall, running\n",
		packages: "./store", tests: "TestWallTimeNeverGoesBack",
	},
	{
		guarantee: "G7", name: "wall time goes back over a restart",
		file:     "store/clock.go",
		old:      "	s.notBefore(p.at.wall)\n",
		new:      "",
		packages: "./store", tests: "TestWallTimeNeverGoesBack",
	},
	{
		guarantee: "G1", name: "a restart brings a partition to the logged time of another",
		file:     "store/clock.go",
		old:      "	logged := p.at.logged\n",
		new:      "	logged := max(p.at.logged, s.partitions[len(s.partitions)-1].at.logged)\n",
		packages: "./store", tests: "TestPartitionsAgeAlone",
	},
	{
		guarantee: "G1", name: "the memory of a former table drains by another partition's time",
		file:     "store/tables.go",
		old:      "change(p.catalog, x.at(p))",
		new:      "change(p.catalog, x.at(ps[0]))",
		packages: "./store", tests: "TestPartitionsAgeAlone",
	},
	{
		guarantee: "G4", name: "rows are written before what they show is committed",
		file:     "store/checkpoint.go",
		old:      "	if err := (point{c.p, c.at.life, c.need}).wait(); err != nil {\n		return err\n	}\n",
		new:      "",
		packages: "./store", tests: "TestNothingUncommittedReachesDisk",
	},
	{
		guarantee: "G4", name: "a row does not say which commit it waits for",
		file:     "store/writeback.go",
		old:      "			c.need = max(c.need, k.seq)",
		new:      "			_ = c.need",
		packages: "./store", tests: "TestNothingUncommittedReachesDisk",
	},
	{
		guarantee: "G4", name: "a checkpoint begins before what it holds is committed",
		file:     "store/checkpoint.go",
		old:      "	err := c.at.wait()\n",
		new:      "	var err error\n",
		packages: "./store", tests: "TestNothingUncommittedReachesDisk",
	},
	{
		guarantee: "G4", name: "runs are built of what is not committed",
		file:     "store/checkpoint.go",
		old:      "		err = here.wait()\n",
		new:      "		_ = here\n",
		packages: "./store", tests: "TestNothingUncommittedReachesDisk",
	},
	{
		guarantee: "G4", name: "a snapshot is published before what it holds is committed",
		file:     "store/snapshot.go",
		old:      "	if err := p.awaitCommit(); err != nil {\n		return err\n	}\n	return w.Commit()\n",
		new:      "	return w.Commit()\n",
		packages: "./store", tests: "TestNothingUncommittedReachesDisk",
	},
	{
		guarantee: "G4", name: "a backup is published before its log is committed",
		file:     "persistence/backup.go",
		old:      "	if err := committed(); err != nil {\n		return err\n	}\n",
		new:      "",
		packages: "./store", tests: "TestNothingUncommittedReachesDisk",
	},
	{
		guarantee: "G8", name: "a frozen partition takes writes",
		file:     "store/execute.go",
		old:      "	if x.frozen != nil && op.Kind.Write() {\n",
		new:      "	if false {\n",
		packages: "./store", tests: "TestFrozenPartition",
	},
	{
		guarantee: "G8", name: "an atomic batch is applied but for what a frozen partition refuses",
		file:     "store/execute.go",
		old:      "	if x.atomic || op.Kind.can(allKeys) {\n",
		new:      "	if op.Kind.can(allKeys) {\n",
		packages: "./store", tests: "TestFrozenPartition",
	},
	{
		guarantee: "G8", name: "filters are refreshed in a frozen partition",
		file:     "store/maintain.go",
		old:      "	if x.lock(); x.frozen != nil {\n		x.unlock()\n		return\n	}\n	for _, t",
		new:      "	x.lock()\n	for _, t",
		packages: "./store", tests: "TestFrozenPartition",
	},
}
