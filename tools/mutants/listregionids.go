package main

// regionIDMutants break what is known of operations that several regions have applied.
var regionIDMutants = []mutant{
	{
		guarantee: "rank", name: "of two regions' applications the later one counts",
		file:     "store/seen/record.go",
		old:      "		cmp.Compare(o.UnixMs, other.UnixMs),\n",
		new:      "		cmp.Compare(other.UnixMs, o.UnixMs),\n",
		packages: "./store/seen", tests: "TestRank",
	},
	{
		guarantee: "rank", name: "an own application has no region of its own in a rank",
		file:     "store/seen/record.go",
		old:      "	if o.Own() {\n		return self\n	}\n",
		new:      "",
		packages: "./store/seen", tests: "TestRank",
	},
	{
		guarantee: "rank", name: "an own record does not tell its dot",
		file:     "store/seen/records.go",
		old:      "		o.Dot = seq\n",
		new:      "		o.Dot = 0\n",
		packages: "./store/seen", tests: "TestSupersede",
	},
	{
		guarantee: "take-back", name: "a record forgets that its operation was taken back",
		file:     "store/seen/record.go",
		old:      "	if o.Taken != 0 {\n		dst = append(",
		new:      "	if false {\n		dst = append(",
		packages: "./store/seen", tests: "TestOrigin$",
	},
	{
		guarantee: "take-back", name: "in a run the first record of an operation counts, not the newest",
		file:     "store/seen/search.go",
		old:      "			if (!s.found || buf.Seq > s.seq) && isOf(",
		new:      "			if !s.found && isOf(",
		packages: "./store/seen", tests: "TestSupersede$",
	},
	{
		guarantee: "take-back", name: "a key's record in the table asked first hides a newer one",
		file:     "store/seen/search.go",
		old:      "		if s.found && run.LastSeq <= s.seq {",
		new:      "		if s.found {",
		packages: "./store/seen", tests: "TestSupersedeAcrossTables",
	},
	{
		guarantee: "take-back", name: "what was found counts although a newer run could not be read",
		file:     "store/seen/search.go",
		old:      "	s.found = false\n	return err\n",
		new:      "	return err\n",
		packages: "./store/seen", tests: "TestSearchFails",
	},
	{
		guarantee: "retention", name: "an own record goes before the other regions have it",
		file:     "store/seen/await.go",
		old:      "!(b.Awaited != nil && isAwaited)",
		new:      "!(b.Awaited != nil && isAwaited && false)",
		packages: "./store/seen", tests: "TestAwaited$",
	},
	{
		guarantee: "retention", name: "a run that half of is acknowledged goes",
		file:     "store/seen/await.go",
		old:      "		isAwaited := r.LastSeq > await.Acked",
		new:      "		isAwaited := r.FirstSeq > await.Acked",
		packages: "./store/seen", tests: "TestAwaited$",
	},
	{
		guarantee: "retention", name: "another region's records count as forgotten unchecked",
		file:     "store/seen/await.go",
		old:      "o.Own() && seq > acked",
		new:      "o.Dot+1 > 0 && seq > acked",
		packages: "./store/seen", tests: "TestAwaited$",
	},
	{
		guarantee: "retention", name: "runs that are awaited for long are never merged",
		file:     "store/seen/build.go",
		old:      "	return mergeRange(all[:late], max(keep, await))\n",
		new:      "	return 0, 0\n",
		packages: "./store/seen", tests: "TestAwaitedRunsStayFew",
	},
}
