package main

// operateMutants break what makes, changes and ends a node's membership of a cluster.
var operateMutants = []mutant{
	{
		guarantee: "G2", name: "a node votes before it has caught up",
		file:     "cluster/admin.go",
		old:      "		if !p.Near || !r.Vote {\n",
		new:      "		if !r.Vote {\n",
		packages: "./cluster", tests: "TestVoteComesLast",
	},
	{
		guarantee: "G1", name: "a node joins with what it has",
		file:     "cluster/directory.go",
		old:      "		case erase:\n			m.Pending = pendingErase\n",
		new:      "		case erase:\n",
		packages: "./cluster", tests: "TestDirectoryIsInterrupted",
	},
	{
		guarantee: "G1", name: "a directory that is being erased is taken for erased",
		file:     "cluster/directory.go",
		old:      "		if err := persistence.Erase(d.fs, d.path); err != nil {\n			return err\n		}\n		if err := d.change(func(m *membership) {\n			if m.Pending = \"\"; m.From != \"\" {\n				m.Pending = pendingAdopt\n			}\n		}); err != nil {\n			return err\n		}\n",
		new:      "		if err := d.change(func(m *membership) {\n			if m.Pending = \"\"; m.From != \"\" {\n				m.Pending = pendingAdopt\n			}\n		}); err != nil {\n			return err\n		}\n		if err := persistence.Erase(d.fs, d.path); err != nil {\n			return err\n		}\n",
		packages: "./cluster", tests: "TestDirectoryIsInterrupted",
	},
	{
		guarantee: "G1", name: "a member's directory is served without its cluster",
		file:     "cluster/directory.go",
		old:      "	if m.Configuration != nil || m.Removed != \"\" {\n",
		new:      "	if m.Configuration != nil && m.Removed != \"\" {\n",
		packages: "./cluster", tests: "TestDirectoryIsRefused",
	},
	{
		guarantee: "G2", name: "a node that was removed starts again",
		file:     "cluster/directory.go",
		old:      "	if err == nil && is.Removed != \"\" {\n",
		new:      "	if err == nil && is.Removed == \"-\" {\n",
		packages: "./cluster", tests: "TestDirectoryIsRefused",
	},
	{
		guarantee: "G1", name: "a node whose data was recovered leads on, alone",
		file:     "cluster/directory.go",
		old:      "	if err == nil && is.Recovered && !recovers {\n",
		new:      "	if false {\n",
		packages: "./cluster", tests: "TestDirectoryIsRefused",
	},
	{
		guarantee: "G1", name: "a recovery that is refused changes the directory",
		file:     "cluster/recover.go",
		old:      "	if err := persistence.CheckTarget(vfs.Default, dir, to); err != nil {\n		return err\n	}\n",
		new:      "",
		packages: "./integration_test", tests: "TestClusterIsRecovered",
	},
	{
		guarantee: "G1", name: "a configuration of another cluster takes the place of this one's",
		file:     "cluster/config.go",
		old:      "	case c.Cluster != old.Cluster || c.Seed != old.Seed || c.Partitions != old.Partitions:\n",
		new:      "	case c.Partitions != old.Partitions:\n",
		packages: "./cluster", tests: "TestConfigurationChanges",
	},
	{
		guarantee: "G1", name: "a directory with ids of deleted counters is taken for empty",
		file:     "store/stats.go",
		old:      "p.floor != 0 || f.Recent+f.Runs > 0 || ",
		new:      "p.floor != 0 || f.Recent+f.Runs < 0 || ",
		packages: "./store", tests: "TestPristine",
	},
	{
		guarantee: "G2", name: "the founder's data are not behind a snapshot",
		file:     "cluster/directory.go",
		old:      "			m.Pending = pendingFound\n",
		new:      "			m.Pending = \"\"\n",
		packages: "./cluster", tests: "TestFounderBeginsBehindItsData",
	},
}
