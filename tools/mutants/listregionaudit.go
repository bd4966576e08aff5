package main

// regionAuditMutants break how regions compare themselves by digests.
var regionAuditMutants = []mutant{
	{
		guarantee: "G1", name: "regions that differ are not told of",
		file:     "regions/audit.go",
		old:      "			suspects = m.lookAt(m.audited(suspects), suspects)\n",
		new:      "			suspects = m.lookAt(m.audited(suspects), nil)\n",
		packages: "./regions", tests: "TestAudit",
	},
	{
		guarantee: "G1", name: "slots that were found to differ once are a mismatch",
		file:     "regions/audit.go",
		old:      "known.mismatch[i] || suspect[i]",
		new:      "true || suspect[i]",
		packages: "./regions", tests: "TestAudit",
	},
	{
		guarantee: "G1", name: "slots that could not be compared are equal",
		file:     "regions/audit.go",
		old:      "			case !missed[i]:\n",
		new:      "			case !missed[i] || i >= 0:\n",
		packages: "./regions", tests: "TestAudit",
	},
	{
		guarantee: "G1", name: "slots that could not be compared differ",
		file:     "regions/audit.go",
		old:      "			if missed.add(d.SlotRange); !",
		new:      "			differ.add(d.SlotRange)\n			if missed.add(d.SlotRange); !",
		packages: "./regions", tests: "TestAuditBusy",
	},
	{
		guarantee: "G1", name: "a region that was restored tells that it differs",
		file:     "regions/audit.go",
		old:      "set.Removed || own.Incarnation != m.opts.identity().Incarnation {",
		new:      "set.Removed || own.Incarnation == 0 {",
		packages: "./regions", tests: "TestAuditOfUnread",
	},
	{
		guarantee: "G1", name: "slots that differed and could not be compared afterwards are no suspects any more",
		file:     "regions/audit.go",
		old:      "				rest[i] = suspect[i]\n",
		new:      "				rest[i] = false\n",
		packages: "./regions", tests: "TestSuspects",
	},
	{
		guarantee: "G1", name: "a region that cannot compare itself says nothing",
		file:     "regions/audit.go",
		old:      "		known.failed = failed\n",
		new:      "		known.failed = nil\n",
		packages: "./regions", tests: "TestSuspects|TestAuditShown",
	},
	{
		guarantee: "G1", name: "a connection that was closed between two digests ends the look",
		file:     "regions/verify.go",
		old:      "	for range 2 {\n		fresh",
		new:      "	for range 1 {\n		fresh",
		packages: "./regions", tests: "TestVerifyConnectsAnew",
	},
	{
		guarantee: "G1", name: "of slots that are being changed all keys count as being changed",
		file:     "regions/verify.go",
		old:      "round+1, true, fineSlots {",
		new:      "round+1, false, fineSlots {",
		packages: "./regions", tests: "TestLookNarrows",
	},
	{
		guarantee: "G1", name: "a key that was dropped while regions were being compared is a difference",
		file:     "store/regionkey.go",
		old:      "	p.noteDropped(e.key, seq)\n",
		new:      "",
		packages: "./store", tests: "TestDigestOfDropped",
	},
	{
		guarantee: "G1", name: "of the parts that an heir goes on with the highest clock alone tells what was taken",
		file:     "store/regiondigest.go",
		old:      "			*clock += q.Clock\n",
		new:      "			*clock = max(*clock, q.Clock)\n",
		packages: "./store", tests: "TestDigestOfGone",
	},
	{
		guarantee: "G5", name: "a digest goes on when nobody wants it any more",
		file:     "store/regiondigest.go",
		old:      "		if ctx.Err() != nil {\n",
		new:      "		if false {\n",
		packages: "./store", tests: "TestDigestEnds",
	},
}
