package main

// checkMutants break Check of package store, which finds what broke a guarantee, and the
// snapshots that it reads.
var checkMutants = []mutant{
	{
		guarantee: "G4", name: "a checkpoint keeps an object that has become unreadable since it was captured",
		file:     "store/savepages.go",
		old:      "		if c.spoiled {\n",
		new:      "		if false {\n",
		packages: "./store", tests: "TestUnreadableWhileSaved",
	},
	{
		guarantee: "G2", name: "keys are dropped from a backup",
		file:     "store/unreadable.go",
		old:      "err != nil || !used {\n",
		new:      "err != nil || !used && false {\n",
		packages: "./store", tests: "TestUnreadableObject",
	},
	{
		guarantee: "G4", name: "check takes the row of a counter for that of the object that came to lie under its key",
		file:     "store/check_views.go",
		old:      "	p.hot.clear()\n	for _, k := range p.objects {\n",
		new:      "	for _, k := range p.objects {\n",
		packages: "./store", tests: "TestCheckObjectOverCounter",
	},
	{
		guarantee: "G1", name: "check does not compare the filters that it has made",
		file:     "store/check_views.go",
		old:      "digestOf(want.encoders[i]) != digestOf(is.encoders[i])",
		new:      "digestOf(want.encoders[i]) != digestOf(is.encoders[i]) && name == \"\"",
		packages: "./store", tests: "TestCheckFinds|TestCheckCompares",
	},
	{
		guarantee: "G2", name: "check does not miss a row",
		file:     "store/check_views.go",
		old:      "		if k.is&isInRow == 0 {\n",
		new:      "		if false {\n",
		packages: "./store", tests: "TestCheckFinds|TestCheckCompares",
	},
	{
		guarantee: "G4", name: "check does not compare the state row",
		file:     "store/check_views.go",
		old:      "		c.checkState()\n",
		new:      "",
		packages: "./store", tests: "TestCheckFinds|TestCheckCompares",
	},
	{
		guarantee: "G5", name: "check takes any record for the one that the log has",
		file:     "store/check_views.go",
		old:      " || c.exact[i].digest != hotHash(value) {",
		new:      " {",
		packages: "./store", tests: "TestCheckFinds|TestCheckCompares",
	},
	{
		guarantee: "G4", name: "the log is trimmed up to the newest snapshot",
		file:     "store/checkpoint.go",
		old:      "	keep := min(list[1].Seq, c.state.seq)\n",
		new:      "	keep := c.state.seq\n",
		packages: "./store", tests: "TestDamagedSnapshots",
	},
	{
		guarantee: "G4", name: "a snapshot with the name of another is loaded",
		file:     "store/snapshot.go",
		old:      "	if err == nil && loaded.seq != snap.Seq {\n",
		new:      "	if false {\n",
		packages: "./store", tests: "TestCheckFinds|TestCheckCompares",
	},
}
