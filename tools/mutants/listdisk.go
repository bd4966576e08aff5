package main

// diskMutants are the edits that break what is promised of a disk that is full, slow or
// taken away.
var diskMutants = []mutant{
	{
		guarantee: "G8", name: "no space is reserved before a batch is decided",
		file:     "store/execute.go",
		old:      "	err := s.db.Reserve(bytes)\n",
		new:      "	var err error\n",
		packages: "./store", tests: "TestDiskFilledByNeighbour",
	},
	{
		guarantee: "G8", name: "what is reserved does not move to the next log file",
		file:     "persistence/logroom.go",
		old:      "		if more >= 0 || l.take(-more, 0) {\n",
		new:      "		if more >= 0 || true {\n",
		packages: "./persistence", tests: "TestReserved",
	},
	{
		guarantee: "G8", name: "a full disk has no spare for a start",
		file:     "persistence/spare.go",
		old:      "	if s.size >= n {\n",
		new:      "	if s.size < n {\n",
		packages: "./persistence", tests: "TestStartOnFullDisk",
	},
	{
		guarantee: "G8", name: "a checkpoint that lacks space freezes the store",
		file:     "store/checkpoint.go",
		old:      "	if !errors.Is(err, persistence.ErrNoSpace) {\n",
		new:      "	if !errors.Is(err, nil) {\n",
		packages: "./store", tests: "TestDiskFilledByNeighbour",
	},
	{
		guarantee: "G8", name: "a replaced directory is not noticed",
		file:     "persistence/dirlock.go",
		old:      "ok && is != was {\n",
		new:      "ok && is != was && false {\n",
		packages: "./persistence", tests: "TestReplacedDirectory",
	},
	{
		guarantee: "G8", name: "who deletes LOCK opens a directory twice",
		file:     "persistence/dirlock.go",
		old:      "	if err = lockHandle(l.dir); err == nil {\n",
		new:      "	if err == nil {\n",
		packages: "./persistence", tests: "TestMissingLockFile",
	},
	{
		guarantee: "G3", name: "who reads waits with those who write to a slow disk",
		file:     "persistence/syncer.go",
		old:      "	return since != 0 && ",
		new:      "	return since == 1 && ",
		packages: "./server", tests: "TestReadsGoOnWhileTheDiskIsSlow",
	},
	{
		guarantee: "G4", name: "a log file that is not ended counts as ended",
		file:     "persistence/logfiles.go",
		old:      "	for l.ending {\n",
		new:      "	for false {\n",
		packages: "./persistence", tests: "TestFullFileKeepsNobodyWaiting",
	},
}
