package main

// hangMutants break what a node does about a disk that does not answer.
var hangMutants = []mutant{
	{
		guarantee: "R8", name: "a write that hangs is not noticed",
		file:     "persistence/oplog/log.go",
		old:      "	l.writes.begin()\n	defer l.writes.end()\n",
		new:      "",
		packages: "./persistence/oplog", tests: "TestHang",
	},
	{
		guarantee: "R8", name: "a background fsync that hangs is not noticed",
		file:     "persistence/oplog/fsync.go",
		old:      "	f.s.fsyncs.begin()\n	defer f.s.fsyncs.end()\n",
		new:      "",
		packages: "./persistence/oplog", tests: "TestHang",
	},
	{
		guarantee: "R8", name: "a pause makes an fsync older",
		file:     "persistence/oplog/hang.go",
		old:      "	passed = min(passed, maxLook)\n",
		new:      "",
		packages: "./persistence/oplog", tests: "TestHang",
	},
	{
		guarantee: "R8", name: "fsyncs that each end in time are taken for one",
		file:     "persistence/oplog/hang.go",
		old:      " || !s.busy || ended != s.ended {",
		new:      " {",
		packages: "./persistence/oplog", tests: "TestHang",
	},
	{
		guarantee: "R8", name: "a leader whose disk hangs goes on to send heartbeats",
		file:     "cluster/hang.go",
		old:      " && !n.transport.Silence(true) {",
		new:      " {",
		packages: "./cluster", tests: "TestHungDiskOfALeader",
	},
	{
		guarantee: "R8", name: "a node stays silent that leads again",
		file:     "cluster/node.go",
		old:      "			n.transport.Silence(false)\n",
		new:      "",
		packages: "./cluster", tests: "TestHungDiskOfALeader",
	},
	{
		guarantee: "R8", name: "leadership returns to a node whose disk hung",
		file:     "cluster/handover.go",
		old:      " && !n.hasHung()",
		new:      "",
		packages: "./cluster", tests: "TestHungDiskOfALeader",
	},
	{
		guarantee: "R8", name: "a process whose disk hangs goes on",
		file:     "cluster/hang.go",
		old:      "	case age >= hangEnds:",
		new:      "	case age >= 1000*hangEnds:",
		packages: "./cluster", tests: "TestHungDiskEndsTheProcess",
	},
	{
		guarantee: "R8", name: "a process that ends for its disk keeps its connections",
		file:     "cluster/hang.go",
		old:      "		_ = n.o.Net.Abandon() // the",
		new:      "		// the",
		packages: "./cluster", tests: "TestHungDiskEndsTheProcess",
	},
	{
		guarantee: "R8", name: "a leader that nobody can replace gives up",
		file:     "cluster/hang.go",
		old:      " && n.voters() > 1",
		new:      "",
		packages: "./cluster", tests: "TestHungDiskAlone",
	},
}
