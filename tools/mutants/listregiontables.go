package main

// regionTableMutants break how a region says what tables differ.
var regionTableMutants = []mutant{
	{
		guarantee: "G1", name: "the tables of a region are asked for once",
		file:     "regions/ahead.go",
		old:      "		a.well = false // the same, and then a request that begins anew\n",
		new:      "",
		packages: "./regions", tests: "TestTables",
	},
	{
		guarantee: "G1", name: "who does not tell its tables is not read",
		file:     "regions/tables.go",
		old:      "	if failed == \"\" {\n",
		new:      "	if failed != \"\" {\n		return errorOf(failed)\n	} else {\n",
		packages: "./regions", tests: "TestTablesOfOld",
	},
	{
		guarantee: "G1", name: "a table that is told in one region only is no difference",
		file:     "regions/tables.go",
		old:      "		case !a.Told() && !b.Told() ||",
		new:      "		case !a.Told() || !b.Told() ||",
		packages: "./regions", tests: "TestTablesIll",
	},
	{
		guarantee: "G1", name: "tables are compared by name",
		file:     "regions/tables.go",
		old:      "		a, b := here.Of(prefix), there.Of(prefix)\n",
		new:      "		a, b := here.Of(prefix), there.Of(prefix)\n		if a.Name != b.Name {\n			continue\n		}\n",
		packages: "./regions", tests: "TestTablesIll",
	},
	{
		guarantee: "G1", name: "tables of other regions are believed",
		file:     "regions/tables.go",
		old:      "		err = set.Validate()\n",
		new:      "",
		packages: "./regions", tests: "FuzzTables",
	},
}
