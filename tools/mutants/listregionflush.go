package main

// regionFlushMutants break the flush of all regions.
var regionFlushMutants = []mutant{
	{
		guarantee: "G1", name: "what an era that has ended counted comes back",
		file:     "store/regionflush.go",
		old:      "	return era < g.Era, nil\n",
		new:      "	return false, nil\n",
		packages: "./store", tests: "TestRegionFlush$",
	},
	{
		guarantee: "G2", name: "what is counted in a new era is taken into the old one, and flushed",
		file:     "store/regionflush.go",
		old:      "	if era > g.Era {\n",
		new:      "	if false {\n",
		packages: "./store", tests: "TestRegionFlush$",
	},
	{
		guarantee: "G1", name: "a flush does not wait for what is being taken",
		file:     "store/regionflush.go",
		old:      "	for _, p := range s.partitions {\n		p.taking.mu.Lock()\n	}\n	s.snapshots.lock()\n",
		new:      "	s.snapshots.lock()\n	if len(s.partitions) > 0 {\n		return true, sync.OnceFunc(s.snapshots.unlock)\n	}\n",
		packages: "./store", tests: "TestRegionFlushTaking",
	},
	{
		guarantee: "G3", name: "an era is told of that a crash may end",
		file:     "store/regionflush.go",
		old:      "		if dead <= committed {\n",
		new:      "		if true {\n",
		packages: "./store", tests: "TestRegionFlushCommit",
	},
	{
		guarantee: "G1", name: "others hear of what came before a flush",
		file:     "store/pull.go",
		old:      "	d.upTo = max(d.upTo, dead)\n",
		new:      "	d.upTo = max(d.upTo, dead*0)\n",
		packages: "./store", tests: "TestRegionFlushRefused",
	},
	{
		guarantee: "G4", name: "one partition is not flushed",
		file:     "store/region.go",
		old:      "		if flushes {\n",
		new:      "		if flushes && p.id != 1 {\n",
		packages: "./store", tests: "TestRegionFlushCrash",
	},
	{
		guarantee: "G1", name: "an era that has ended begins again",
		file:     "store/region.go",
		old:      "		case g != nil && set.Era < g.Era:\n",
		new:      "		case false:\n",
		packages: "./store", tests: "TestRegionFlushRefused",
	},
	{
		guarantee: "G4", name: "a part has a time that nothing can be later than",
		file:     "store/part/code.go",
		old:      " || max(q.Set.HLC, q.Expire.HLC) > MaxHLC {\n",
		new:      " {\n",
		packages: "./store/part", tests: "TestCodeRefuses",
	},
	{
		guarantee: "G4", name: "a note has a time that nothing can be later than",
		file:     "store/regionentry.go",
		old:      "n.HLC = r.UpTo(part.MaxHLC)",
		new:      "n.HLC = r.Uvarint()",
		packages: "./store", tests: "TestNoteBeyondAllClocks",
	},
	{
		guarantee: "G1", name: "a full part keeps take-backs that all regions know",
		file:     "store/regionhear.go",
		old:      "		if err := x.dropSpent(r); err != nil { //",
		new:      "		if err := error(nil); err != nil { //",
		packages: "./store", tests: "TestTakeBackWhenFull",
	},
	{
		guarantee: "G4", name: "what is refused of another region moves the cursor",
		file:     "store/take.go",
		old:      "	if d.after > at {\n",
		new:      "	if d.after > at+1 {\n",
		packages: "./store", tests: "TestRegions$|FuzzTake",
	},
	{
		guarantee: "G4", name: "a cursor is logged before what it has taken",
		file:     "store/take.go",
		old:      "	t.s.Execute(b)\n",
		new:      "	if whole {\n		var c Batch\n		*c.Add(regionCursor) = b.Ops[len(b.Ops)-1]\n		c.Ops[0].Flags = 0\n		t.s.Execute(&c)\n	}\n	t.s.Execute(b)\n",
		packages: "./store", tests: "TestRegionCrash",
	},
}
