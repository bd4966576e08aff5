package cpuprofile

// Kind is a kind of work.
type Kind int

// The kinds, from the request to the reply, then what the process costs besides.
const (
	Requests Kind = iota
	Routing
	Finding
	Deciding
	Log
	Exact
	Rows
	Replies
	Runtime
	Network
	Files
	Other
	Kinds // how many there are
)

// names are short names and descriptions of the kinds.
var names = [Kinds]struct{ short, long string }{
	Requests: {"requests", "reading, parsing and accounting requests"},
	Routing:  {"routing", "routing and hashing"},
	Finding:  {"finding", "finding counters, asking filters and setting their bits"},
	Deciding: {"deciding", "deciding, encoding log entries, changing counters"},
	Log:      {"op log", "writing the op log"},
	Exact:    {"EXACT", "EXACT records in memory and in runs"},
	Rows:     {"rows", "counters' rows (their index; Pebble with its flushes and compactions), checkpoints, snapshots"},
	Replies:  {"replies", "encoding replies"},
	Runtime:  {"Go", "Go's runtime: scheduler, memory, garbage collection"},
	Network:  {"network", "kernel: network"},
	Files:    {"files", "kernel: files, fsync"},
	Other:    {"other", "anything else"},
}

// String is a short name, of one or two words.
func (k Kind) String() string { return names[k].short }

// Description says in a few words what the kind holds.
func (k Kind) Description() string { return names[k].long }

// rule says what the frames are that begin with a prefix. A frame is known by
// its function (store.(*execution).begin) and its file (store/execute.go); our
// own packages without the module's path. The longest prefix decides.
type rule struct {
	prefix string
	user   Kind
	kernel Kind // if the frame waits for a system call
}

// pass marks frames that work for their caller, as unknown ones do.
const pass Kind = -1

// rules is the table of what a frame is.
var rules = []rule{
	{"server.", Requests, Network},
	{"server.(*worker).answer", Replies, Network},
	{"server.(*worker).send", Replies, Network},
	{"server.(*worker).prepare", Replies, Network},
	{"server.(*worker).resend", Replies, Network},
	{"server.(*polled).write", Replies, Network},
	{"server/resp.", Requests, Network},
	{"server/resp/writer.go", Replies, Network},
	{"server/resp.(*Writer)", Replies, Network},
	{"github.com/tidwall/redcon.", Replies, Network},
	{"commands.", Requests, Network},
	{"commands.(*Pipeline).answer", Replies, Network},
	{"commands.(*Pipeline).Answer", Replies, Network},
	{"commands.(*Pipeline).Flush", Replies, Network},
	{"net.", pass, Network},

	{"store.", Deciding, Files},
	{"store/op.go", Requests, Files},
	{"store/slot.go", Routing, Files},
	{"store.hotHash", Routing, Files},
	{"store.(*execution).begin", Routing, Files},
	{"store/route.go", Routing, Files},
	{"store.(*decider).prepare", Finding, Files},
	{"store.(*decider).request", Finding, Files},
	{"store.(*decider).install", Finding, Files},
	{"store.(*decider).find", Finding, Files},
	{"store.(*decider).fetch", Finding, Files},
	{"store.touch", Finding, Files},
	{"store/judge.go", Finding, Files},
	{"store/hottable.go", Finding, Files},
	{"store.(*hotCounters).get", Finding, Files},
	{"store.(*hotCounters).install", Finding, Files},
	{"store.(*hotCounters).trim", Finding, Files},
	{"store.(*hotCounters).forget", Finding, Files},
	{"store.newCounter", Finding, Files},
	{"store/recent", Exact, Files},
	{"store/record", Exact, Files},
	{"store.(*decider).confirmPositives", Exact, Files},
	{"store.(*decider).judgeOne", Exact, Files},
	{"store.(*decider).askRecords", Exact, Files},
	{"store.(*decider).lookUp", Exact, Files},
	{"store/run", Exact, Files},
	{"store/runmerge.go", pass, pass}, // of records or of rows
	{"store/losertree.go", pass, pass},
	{"store.(*Store).flushRecords", Exact, Files},
	{"store.(*checkpoint).buildRun", Exact, Files},
	{"store.(*checkpoint).writeRun", Exact, Files},
	{"store/row", Rows, Files},
	{"store/checkpoint.go", Rows, Files},
	{"store/writeback.go", Rows, Files},
	{"store/snapshot.go", Rows, Files},
	{"store/maintain.go", Rows, Files},

	{"fbf.", Finding, Finding},
	{"fbf.Hash", Routing, Finding},

	{"persistence.", Log, Files},
	{"persistence/run", pass, pass},
	{"persistence/directwriter.go", pass, pass},
	{"persistence/rows.go", Rows, Files},
	{"persistence/expiry.go", Rows, Files},
	{"persistence/snapshot", Rows, Files},
	{"persistence/pebble.go", Rows, Files},
	{"persistence.(*Batch).PutRow", Rows, Files},
	{"github.com/cockroachdb/pebble", Rows, Files},
	{"github.com/cockroachdb/pebble/v2/record.", Log, Files},
	{"github.com/cockroachdb/pebble/v2/vfs.", pass, Files},
	{"github.com/cockroachdb/pebble/v2/vfs/", pass, Files},

	{"runtime.mallocgc", Runtime, Runtime},
	{"runtime.gc", Runtime, Runtime},
	{"runtime.(*gc", Runtime, Runtime},
	{"runtime.bgsweep", Runtime, Runtime},
	{"runtime.bgscavenge", Runtime, Runtime},
	{"runtime.wbBufFlush", Runtime, Runtime},
	{"runtime.schedule", Runtime, Runtime},
	{"runtime.findRunnable", Runtime, Runtime},
	{"runtime.netpoll", Runtime, Runtime},
	{"runtime.mcall", Runtime, Runtime},
	{"runtime.gopark", Runtime, Runtime},
	{"runtime.goready", Runtime, Runtime},
	{"runtime.ready", Runtime, Runtime},
	{"runtime.newproc", Runtime, Runtime},
	{"runtime.newstack", Runtime, Runtime},
	{"runtime.morestack", Runtime, Runtime},
	{"runtime.notewakeup", Runtime, Runtime},
	{"runtime.notesleep", Runtime, Runtime},
	{"runtime.notetsleep", Runtime, Runtime},
	{"runtime.futex", Runtime, Runtime},
	{"runtime.lock2", Runtime, Runtime},
	{"runtime.unlock2", Runtime, Runtime},
	{"runtime.sem", Runtime, Runtime},
	{"runtime.chan", Runtime, Runtime},
	{"runtime.selectgo", Runtime, Runtime},
	{"runtime.entersyscall", Runtime, Runtime},
	{"runtime.reentersyscall", Runtime, Runtime},
	{"runtime.exitsyscall", Runtime, Runtime},
	{"runtime.sysmon", Runtime, Runtime},
	{"runtime.(*timer", Runtime, Runtime},
}

// systemCalls begin the names of the functions that enter the kernel.
var systemCalls = []string{
	"internal/runtime/syscall", "syscall.Syscall", "syscall.RawSyscall", "syscall.rawSyscall", "syscall.rawVforkSyscall",
	"runtime.futex", "runtime.epollwait", "runtime.madvise", "runtime.usleep", "runtime.sysMmap", "runtime.sysMunmap", "runtime.write1",
	"runtime.tgkill", "runtime.osyield",
}
