package main

// regionWireMutants break what a server that is a region does beside telling and taking.
var regionWireMutants = []mutant{
	{
		guarantee: "G1", name: "keys of a table that is not told are told",
		file:     "store/tell.go",
		old:      " && of[i].catalog.find(e.key).Told() {",
		new:      " {",
		packages: "./store", tests: "TestTableRegions",
	},
	{
		guarantee: "G1", name: "others are told from now on of what they lack the beginning of",
		file:     "store/regionshare.go",
		old:      "			if next.find(prefix).Told() && !p.catalog.find(prefix).Told() {\n",
		new:      "			if len(prefix) < 0 {\n",
		packages: "./store", tests: "TestTableRegions",
	},
	{
		guarantee: "G1", name: "writes go on in a region that was removed",
		file:     "store/regionshare.go",
		old:      "		s.unread.Store(&ErrRemoved)\n",
		new:      "		s.unread.Store(nil)\n",
		packages: "./store", tests: "TestUnread",
	},
	{
		guarantee: "G1", name: "writes go on in a directory that was restored",
		file:     "store/regionshare.go",
		old:      "	case set.member(set.Self).Incarnation != known:\n",
		new:      "	case known == 1<<60:\n",
		packages: "./store", tests: "TestUnread",
	},
	{
		guarantee: "G1", name: "the leader of a shard knows its region by its own directory",
		file:     "store/regionshare.go",
		old:      "	if s.replica == nil {\n		known",
		new:      "	if true {\n		known",
		packages: "./store", tests: "TestShardIsRemoved",
	},
	{
		guarantee: "G1", name: "writes go on although nothing may be given up",
		file:     "store/regionshare.go",
		old:      "	unheard := most > uint64(s.opts.RegionBacklog)\n",
		new:      "	unheard := false\n",
		packages: "./store", tests: "TestUnheard",
	},
	{
		guarantee: "G1", name: "what another region did is refused as clients' writes are",
		file:     "store/execute.go",
		old:      "refused != nil && !op.Kind.internal() {",
		new:      "refused != nil {",
		packages: "./store", tests: "TestUnheard",
	},
	{
		guarantee: "G3", name: "the register of a SET counts to no region",
		file:     "store/part/value.go",
		old:      "	if last, of := p.register(); of == r {\n",
		new:      "	if last, of := p.register(); of == r && false {\n",
		packages: "./store", tests: "TestRegions$",
	},
	{
		guarantee: "G8", name: "a region that strangers can read starts",
		file:     "server/regions.go",
		old:      "	if mutual || users.LoginNeeded() || !slices.ContainsFunc(c.Bind, isPublic) {\n",
		new:      "	if mutual || !slices.Contains(c.Bind, \"\") {\n",
		packages: "./server", tests: "TestRegionUnsafe",
	},
	{
		guarantee: "G8", name: "any certificate is good for another region",
		file:     "server/regions.go",
		old:      "	if _, err := chain[0].Verify(o); err != nil {\n",
		new:      "	if _, err := chain[0].Verify(o); false {\n",
		packages: "./server", tests: "TestDialRegion",
	},
	{
		guarantee: "G8", name: "REGION.PULL outlives its connection",
		file:     "commands/regionpull.go",
		old:      "	for !c.Session.gone() {\n",
		new:      "	for {\n",
		packages: "./server", tests: "TestRegionPullEnds",
	},
	{
		guarantee: "G8", name: "an answer to a region is bounded as those to clients are",
		file:     "commands/regionpull.go",
		old:      "	c.W.Proto, c.W.Limit = 2, 0\n",
		new:      "	c.W.Proto = 2\n",
		packages: "./server", tests: "TestRegionPullLarge",
	},
}
