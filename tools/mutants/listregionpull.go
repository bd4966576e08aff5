package main

// regionPullMutants break how regions read each other's logs.
var regionPullMutants = []mutant{
	{
		guarantee: "liveness", name: "a source has one request at a time",
		file:     "regions/ahead.go",
		old:      "a.n < underWay; a.n++ {",
		new:      "a.n < 1; a.n++ {",
		packages: "./regions", tests: "TestAhead",
	},
	{
		guarantee: "liveness", name: "who asks ahead acknowledges nothing",
		file:     "regions/ahead.go",
		old:      "	if a.acked <= 0 && ",
		new:      "	if false && ",
		packages: "./regions", tests: "TestAcknowledgesAhead",
	},
	{
		guarantee: "liveness", name: "what waits behind an answer seems fresh",
		file:     "regions/ahead.go",
		old:      "min(now, clock+a.behind)",
		new:      "now",
		packages: "./regions", tests: "TestArrived",
	},
	{
		guarantee: "liveness", name: "requests that come together are answered together",
		file:     "regions/next.go",
		old:      "	if wait <= 0 || t.more {",
		new:      "	if true {",
		packages: "./regions", tests: "TestEvery",
	},
	{
		guarantee: "liveness", name: "who catches up is answered now and then",
		file:     "regions/next.go",
		old:      "	if wait <= 0 || t.more {",
		new:      "	if wait <= 0 {",
		packages: "./regions", tests: "TestEvery",
	},
	{
		guarantee: "liveness", name: "an answer waits for what is asked behind it",
		file:     "commands/pipeline.go",
		old:      "	if c.Flags&untimed != 0 && p.OnHold != nil {",
		new:      "	if false {",
		packages: "./server", tests: "TestRegionPullNext",
	},
	{
		guarantee: "request", name: "a refusal can be continued",
		file:     "regions/next.go",
		old:      "	q, t.q = t.q, nil\n",
		new:      "	q = t.q\n",
		packages: "./regions", tests: "TestNext",
	},
	{
		guarantee: "request", name: "who was not told of a range goes on behind it",
		file:     "regions/next.go",
		old:      "		if a.err != \"\" {\n",
		new:      "		if a.err == \"x\" {\n",
		packages: "./regions", tests: "TestNext",
	},
	{
		guarantee: "request", name: "what was told is told again",
		file:     "regions/next.go",
		old:      ".After = a.upTo\n",
		new:      ".After += 0\n",
		packages: "./regions", tests: "TestNext",
	},
	{
		guarantee: "request", name: "more is acknowledged than was told",
		file:     "regions/next.go",
		old:      "acked > r.After",
		new:      "acked > r.After && false",
		packages: "./regions", tests: "TestNext",
	},
	{
		guarantee: "request", name: "something behind a packed answer is not seen",
		file:     "regions/answer.go",
		old:      " || whole.Len()+plain.r.Buffered() > 0 {",
		new:      " {",
		packages: "./regions", tests: "TestAnswerMemory",
	},
}
