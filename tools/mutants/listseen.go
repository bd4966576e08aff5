package main

// seenMutants break package store/seen.
var seenMutants = []mutant{
	{
		guarantee: "G1", name: "records leave memory before their run is visible",
		file:     "store/seen/build.go",
		old:      "	for _, table := range slices.Compact(tables) {",
		new:      "	rs.mu.Lock()\n	rs.bundles = slices.Clone(rs.bundles)\n	for i := range b.sealed {\n		rs.bundles[i] = new(bundle)\n	}\n	rs.mu.Unlock()\n	for _, table := range slices.Compact(tables) {",
		packages: "./store", tests: "TestRetriesDuringRuns|TestPowerLoss",
	},
	{
		guarantee: "G1", name: "a look-up in runs is trusted although they changed",
		file:     "store/seen/search.go",
		old:      "return s.done && s.version == s.rs.version }",
		new:      "return s.done }",
		packages: "./store", tests: "TestLookUpIsRepeated",
	},
	{
		guarantee: "G1", name: "of records that are not in the index only the last one is asked",
		file:     "store/seen/bundle.go",
		old:      "	if b := s.findFrom(s.index.count, hash, key, id, others); b != nil {\n",
		new:      "	if b := s.findFrom(max(s.index.count, s.count-1), hash, key, id, others); b != nil {\n",
		packages: "./store/seen", tests: "TestRecentFind",
	},
	{
		guarantee: "G1", name: "a record with a head like another's is passed over",
		file:     "store/seen/bundle.go",
		old:      "	for i := s.count; ; {\n",
		new:      "	for i := s.count; ; i-- {\n",
		packages: "./store/seen", tests: "TestRecentFind",
	},
	{
		guarantee: "G1", name: "a run gets the records of another table",
		file:     "store/seen/sort.go",
		old:      "	s.mixed = n < all\n",
		new:      "	s.mixed = n > all\n",
		packages: "./store/seen", tests: "TestSorter",
	},
	{
		guarantee: "G1", name: "records of the present are not looked for in memory",
		file:     "store/seen/records.go",
		old:      "		if s.last < first || s.first > last {\n",
		new:      "		if s.last <= first || s.first > last || i == len(rs.bundles)-1 && last == s.last {\n",
		packages: "./store/seen", tests: "TestRecentFindWithin",
	},
	{
		guarantee: "G1", name: "a run goes when its first record has expired",
		file:     "store/seen/await.go",
		old:      "		if r.LastTime+keep < b.Now && ",
		new:      "		if r.FirstTime+keep < b.Now && ",
		packages: "./store", tests: "TestRunsAreKept",
	},
	{
		guarantee: "G1", name: "an opid is new although a run's filter leaves it open",
		file:     "store/seen/search.go",
		old:      "	if len(s.runs) > 0 {\n		return false\n	}\n	s.done = true\n",
		new:      "	s.done = true\n",
		packages: "./store", tests: "TestRunFiltersSpareLookUps",
	},
	{
		guarantee: "G4", name: "a run that FLUSHALL forgot is back after a crash",
		file:     "store/seen/search.go",
		old:      " && run.LastSeq > floor {",
		new:      " {",
		packages: "./store", tests: "TestFlushedRows",
	},
	{
		guarantee: "G5", name: "an EXACT record with a field of a later release is not read",
		file:     "store/seen/record.go",
		old:      "		if tag <= last {\n",
		new:      "		if tag <= last || tag > fieldTaken {\n",
		packages: "./store/seen", tests: "TestUnknownFields",
	},
}
