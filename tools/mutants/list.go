package main

import "slices"

// mutants are the edits, by the package that they break and the guarantee.
var mutants = slices.Concat(storeMutants, operateMutants, sketchMutants, seenMutants, checkMutants, clusterMutants, catchupMutants, metaMutants, netMutants, faceMutants, raftlogMutants, hangMutants, replicaMutants, rebuildMutants, persistenceMutants, moveMutants, arrivalMutants, partMutants, regionMutants, regionIDMutants, regionPullMutants, regionFlushMutants, regionStateMutants, regionMemberMutants, regionWireMutants, regionAuditMutants, regionTableMutants, regionTellMutants, regionShardMutants, regionRemovalMutants, otherMutants)

// otherMutants break packages fbf, commands and server, the import, operations that set an
// expiry, and the client for Go.
var otherMutants = []mutant{
	{
		guarantee: "G4", name: "an operation's expiry is not part of its outcome",
		file:     "store/decide_bounded.go",
		old:      "	gone := x.expireEx(e, op, r.c)\n",
		new:      "	gone := false\n",
		packages: "./store", tests: "TestExpiryIsPartOfTheOutcome",
	},
	{
		guarantee: "G6", name: "an increment with an expiry wraps around",
		file:     "store/decide_bounded.go",
		old:      "		if !ok {\n			return boundedResult{}, ErrOverflow\n",
		new:      "		if !ok {\n			next = value + op.Delta\n",
		packages: "./store", tests: "TestBoundedRefusals",
	},
	{
		guarantee: "G1", name: "an increment with an expiry is not idempotent",
		file:     "commands/counters.go",
		old:      "			op.Kind = store.CIncrEx // without bounds\n",
		new:      "			op.Kind = store.IncrEx\n",
		packages: "./integration_test", tests: "TestDialogue",
	},
	{
		guarantee: "G1", name: "an import overwrites what clients have counted",
		file:     "cmd/fbfkv/internal/transfer/import.go",
		old:      "			set = append(set, \"NX\")\n",
		new:      "			set = append(set, \"KEEPTTL\")\n",
		packages: "./integration_test", tests: "TestImport$",
	},
	{
		guarantee: "page", name: "keys are shown to whoever reaches the status page",
		file:     "cmd/fbfkv/internal/monitor/page.go",
		old:      "m.loopback() && !forwarded(r)",
		new:      "!forwarded(r)",
		packages: "./cmd/fbfkv/internal/monitor", tests: "TestPageArguments",
	},
	{
		guarantee: "page", name: "a page of somebody else's reads the status page",
		file:     "cmd/fbfkv/internal/monitor/page.go",
		old:      "if m.loopback() && !isLocal(r.Host) {",
		new:      "if false {",
		packages: "./cmd/fbfkv/internal/monitor", tests: "TestPageHost",
	},
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
	{
		guarantee: "G1", name: "the Go client sends each try with an opid of its own",
		file:     "clients/go/client.go",
		old:      "			commands[n] = ops[i].command(ctx)\n",
		new:      "			op := ops[i]\n			op.ID = newUUID(time.Now())\n			commands[n] = op.command(ctx)\n",
		packages: "./integration_test", tests: "TestPackages/go-redis/Faults",
	},
	{
		guarantee: "G1", name: "the Go client makes an operation anew that may have been applied",
		file:     "clients/go/client.go",
		old:      " || failed.Outcome != NotApplied ||",
		new:      " ||",
		packages: "./integration_test", tests: "TestPackages/go-redis/Stale",
	},
	{
		guarantee: "G1", name: "the Go client retries for longer than the window",
		file:     "clients/go/client.go",
		old:      "last.Before(deadline) {",
		new:      "false {",
		packages: "./integration_test", tests: "TestPackages/go-redis/Window",
	},
	{
		guarantee: "G2", name: "the Go client takes the last try for all of them",
		file:     "clients/go/client.go",
		old:      "			if v.unknown && unknown[i] == nil {\n",
		new:      "			if unknown[i] = nil; v.unknown {\n",
		packages: "./integration_test", tests: "TestPackages/go-redis/Outcomes",
	},
	{
		guarantee: "G7", name: "the Go client keeps an operation's time to itself",
		file:     "clients/go/op.go",
		old:      "	if op.At != 0 {\n",
		new:      "	if false {\n",
		packages: "./integration_test", tests: "TestPackages/go-redis/Errors",
	},
}
