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
		old:      "	if d.upTo = max(d.upTo, dead); committed > d.upTo {\n",
		new:      "	if d.upTo = max(d.upTo, dead*0); committed > d.upTo {\n",
		packages: "./store", tests: "TestRegionFlushRefused",
	},
	{
		guarantee: "G2", name: "what follows a flush in its record is a gap",
		file:     "store/pull.go",
		old:      "Tail(p.id, q.After+1, t.section) //",
		new:      "Tail(p.id, d.upTo+1, t.section) //",
		packages: "./store", tests: "TestRegions$",
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
		guarantee: "G4", name: "a flush is followed late",
		file:     "regions/reading.go",
		old:      "			fails = 0 // this region follows",
		new:      "			fails = r.fails // this region follows",
		packages: "./regions", tests: "TestFlush",
	},
}
