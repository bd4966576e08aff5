package main

// regionAuditMutants break how regions compare themselves by digests.
var regionAuditMutants = []mutant{
	{
		guarantee: "G1", name: "regions that differ are not told of",
		file:     "regions/audit.go",
		old:      "			_, _ = m.lookAt(m.audited(suspects), suspects)\n",
		new:      "			_, _ = m.lookAt(m.audited(suspects), nil)\n",
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
		new:      "			default:\n",
		packages: "./regions", tests: "TestAudit",
	},
	{
		guarantee: "G1", name: "slots that could not be compared differ",
		file:     "regions/audit.go",
		old:      "			missed.add(d.SlotRange)\n",
		new:      "			missed.add(d.SlotRange)\n			differ.add(d.SlotRange)\n",
		packages: "./regions", tests: "TestAuditBusy",
	},
	{
		guarantee: "G1", name: "a region that was restored tells that it differs",
		file:     "regions/audit.go",
		old:      "set.Removed || own.Incarnation != m.opts.identity().Incarnation {",
		new:      "set.Removed || own.Incarnation == 0 {",
		packages: "./regions", tests: "TestAuditOfUnread",
	},
}
