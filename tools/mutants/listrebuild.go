package main

// rebuildMutants break how an open store makes partitions anew, and how it follows another.
var rebuildMutants = []mutant{
	{
		guarantee: "G1", name: "a rebuild drops runs that are on disk",
		file:     "store/seen/search.go",
		old:      "	rs.obsolete = slices.DeleteFunc(rs.obsolete, func(r persistence.Run) bool { return slices.Contains(rs.found, r) })\n",
		new:      "",
		packages: "./store", tests: "TestRebuildUnderLoad",
	},
	{
		guarantee: "G2", name: "a row that was read before a rebuild is installed behind it",
		file:     "store/rebuild.go",
		old:      "		p.hot.evicted[i] = n + 1\n",
		new:      "		p.hot.evicted[i] = 1 + n - n\n",
		packages: "./store", tests: "TestReadOverRebuild",
	},
	{
		guarantee: "G2", name: "a section that is missing is not noticed by who follows",
		file:     "store/redo.go",
		old:      "	if next := p.seq + uint64(len(g.entries)) + 1; seq != next {\n",
		new:      "	if next := p.seq + uint64(len(g.entries)) + 1; seq < next {\n",
		packages: "./store", tests: "TestFollow",
	},
	{
		guarantee: "G1", name: "who follows redoes a section twice",
		file:     "store/redo.go",
		old:      "	if last <= p.seq {\n		return nil\n	}\n",
		new:      "	if last <= p.seq {\n		p.seq = seq - 1\n	}\n",
		packages: "./store", tests: "TestFollow",
	},
	{
		guarantee: "G3", name: "a reply leaves that rests on what was taken back",
		file:     "store/partition.go",
		old:      "	if seq > m.kept[life] {\n",
		new:      "	if false {\n",
		packages: "./store", tests: "TestLives|TestRebuildBetweenPieces",
	},
	{
		guarantee: "G3", name: "a batch forgets what it has seen before a rebuild",
		file:     "store/execute.go",
		old:      "			x.past = append(x.past, point{t.p, t.life, t.need})\n",
		new:      "",
		packages: "./store", tests: "TestRebuildBetweenPieces",
	},
	{
		guarantee: "G8", name: "a batch that waits for a partition holds others",
		file:     "store/execute.go",
		old:      "		for _, t := range x.share.touched[:i] {\n			t.p.mu.Unlock()\n		}\n		x.commitNow()\n",
		new:      "		held := x.share.touched[:i]\n		x.commitNow()\n		defer func() {\n			for _, t := range held {\n				t.p.mu.Unlock()\n			}\n		}()\n",
		packages: "./store", tests: "TestOthersServe",
	},
	{
		guarantee: "G8", name: "a rebuild waits for a batch that waits for it",
		file:     "store/execute.go",
		old:      "		x.commitNow()\n		if x.flushes {\n",
		new:      "		if x.flushes {\n",
		packages: "./store", tests: "TestRebuildBetweenPieces",
	},
	{
		guarantee: "G8", name: "a rebuild leaves memory of the filters behind",
		file:     "store/rebuild.go",
		old:      "		p.pool.used.Add(-int64(t.filter.Bytes()))\n",
		new:      "",
		packages: "./store", tests: "TestRebuild",
	},
	{
		guarantee: "G8", name: "a record that was cut off freezes the store",
		file:     "store/execute.go",
		old:      "	if errors.Is(err, oplog.ErrCut) {\n",
		new:      "	if false && errors.Is(err, oplog.ErrCut) {\n",
		packages: "./store", tests: "TestTakenBack",
	},
	{
		guarantee: "G4", name: "the log is given up while it is read",
		file:     "persistence/oplog/read.go",
		old:      "l.Hold(\"recovery\", math.MaxUint64)",
		new:      "l.Hold(\"recovery\", math.MaxUint64&0)",
		packages: "./persistence/oplog", tests: "TestReadAgain",
	},
}
