package main

import "slices"

// mutants are the edits, by the package that they break and the guarantee.
var mutants = slices.Concat(storeMutants, sketchMutants, persistenceMutants, otherMutants)

// otherMutants break packages fbf, commands and server.
var otherMutants = []mutant{
	{
		guarantee: "G1", name: "a generation is dropped one refresh early",
		file:     "fbf/segment.go",
		old:      "	return s.lanes[l].expire <= now\n",
		new:      "	return s.lanes[l].expire <= now+(s.lanes[l].expire-s.lanes[l].start)/8\n",
		packages: "./fbf ./store", tests: "TestModel|TestWindow|TestPowerLoss",
	},
	{
		guarantee: "G1", name: "a set checks and inserts without its lock",
		file:     "fbf/set.go",
		old:      "	s.mu.Lock()\n	defer s.mu.Unlock()\n	return s.filter.CheckAndInsert(h, s.now())\n",
		new:      "	return s.filter.CheckAndInsert(h, s.now())\n",
		packages: "./fbf", tests: "TestSeenAtTheSameTime",
	},
	{
		guarantee: "G1", name: "a set forgets in the last millisecond of the window",
		file:     "fbf/set.go",
		old:      "window.Milliseconds() + 2",
		new:      "window.Milliseconds()",
		packages: "./fbf", tests: "TestIdleSet",
	},
	{
		guarantee: "G1", name: "an idle set takes its idleness for a pause",
		file:     "fbf/set.go",
		old:      "	lookOften(weak.Make(s))\n",
		new:      "	_ = weak.Make(s)\n",
		packages: "./fbf", tests: "TestIdleSet",
	},
	{
		guarantee: "G5", name: "a set does not grow",
		file:     "fbf/set.go",
		old:      "	for s.filter.Due(now) {\n",
		new:      "	for false && s.filter.Due(now) {\n",
		packages: "./fbf", tests: "TestSetKeepsItsPromise",
	},
	{
		guarantee: "G1", name: "the kernel puts bits where another processor does not look for them",
		file:     "fbf/kernel_amd64.s",
		old:      "	VPSRLQ  $18, Y3, Y7; \\\n",
		new:      "	VPSRLQ  $19, Y3, Y7; \\\n",
		packages: "./fbf", tests: "TestChecks|TestKernelLocates",
	},
	{
		guarantee: "G1", name: "the screening kernel looks for the second line where inserts do not put it",
		file:     "fbf/kernel_amd64.s",
		old:      "	SHLQ      $6, R13\n	ADDQ      R13, DX\n",
		new:      "	SHLQ      $6, R13\n",
		packages: "./fbf", tests: "TestScreen|TestManySegments|TestModel",
	},
	{
		guarantee: "G1", name: "segments beyond those that screening has bits for are not asked",
		file:     "fbf/screen.go",
		old:      "		return all\n",
		new:      "		return screen(f.segs[:screenMost], h)\n",
		packages: "./fbf", tests: "TestManySegments",
	},
	{
		guarantee: "G5", name: "a lane is used again though its first lines were not cleared",
		file:     "fbf/segment.go",
		old:      "					s.clearAt = 0 // the lowest dirty lane changes: its clearing starts over\n",
		new:      "",
		packages: "./fbf", tests: "TestLanesAreClearedWhole",
	},
	{
		guarantee: "G6", name: "a large transaction is executed in parts",
		file:     "commands/transaction.go",
		old:      "	p.round.batch.Atomic = true // all of it is seen, and survives, or nothing (G6)\n",
		new:      "",
		packages: "./commands", tests: "TestTransactionsShareABatch",
	},
	{
		guarantee: "G3", name: "what TLS sends while a client takes nothing overtakes what waits",
		file:     "server/polled_linux.go",
		old:      "	if c.unsent == nil {\n		n, err",
		new:      "	if true {\n		n, err",
		packages: "./server", tests: "TestTLSKeyUpdatesOfDeafClients",
	},
}
