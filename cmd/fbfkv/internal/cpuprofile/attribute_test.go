package cpuprofile

import (
	"math"
	"os"
	"strings"
	"testing"

	"github.com/google/pprof/profile"
)

// stack makes frames of "function file" lines, the innermost first.
func stack(lines ...string) (all []frame) {
	for _, line := range lines {
		function, file, _ := strings.Cut(line, " ")
		all = append(all, frameOf(function, file))
	}
	return all
}

// TestAttribute sorts stacks of every kind.
func TestAttribute(t *testing.T) {
	const (
		ours = "github.com/fbfkv/fbfkv/"
		call = "internal/runtime/syscall/linux.Syscall6"
		peb  = "github.com/cockroachdb/pebble/v2"
	)
	for _, tt := range []struct {
		name  string
		want  Kind
		call  bool
		stack []frame
	}{
		{"parsing", Requests, false, stack("bytes.IndexByte", ours+"server/resp.(*Reader).Next", ours+"server.(*worker).gather")},
		{"looking a command up", Requests, false, stack("runtime.mapaccess1_faststr", ours+"commands.lookup", ours+"server.(*worker).gather")},
		{"an operation's place", Requests, false, stack(ours+"store.(*Batch).Add /src/store/op.go", ours+"commands.parse")},
		{"hashing for a filter", Routing, false, stack("github.com/cespare/xxhash/v2.Sum64", ours+"fbf.Hash", ours+"store.(*ref).judge judge.go")},
		{"routing", Routing, false, stack(ours + "store.(*execution).route /src/store/route.go")},
		{"a filter's bits", Finding, false, stack(ours+"fbf.requestAVX2", ours+"store.(*decider).decide decide.go")},
		{"a counter's place", Finding, false, stack(ours+"store.(*hotTable).get hottable.go", ours+"store.(*decider).decide decide.go")},
		{"deciding", Deciding, false, stack("runtime.memmove", ours+"store.(*decider).turn decide.go")},
		{"a new file of store", Deciding, false, stack(ours + "store.someNew somenew.go")},
		{"the log's bytes", Log, false, stack("runtime.memmove", ours+"persistence.(*Batch).AppendLog batch.go", ours+"store.(*execution).apply")},
		{"the write-ahead log", Log, false, stack(peb + "/record.(*LogWriter).flushPending")},
		{"a record remembered", Exact, false, stack(ours+"store.(*recents).add recents.go", ours+"store.(*partition).redo redo.go")},
		{"a run's checksum", Exact, false, stack("hash/crc32.castagnoliUpdate", ours+"persistence.(*RunWriter).Add runwriter.go",
			ours+"store.mergeSources runmerge.go", ours+"store.(*checkpoint).writeRun runs.go")},
		{"a look-up in a run", Exact, false, stack(ours+"persistence.(*Entries).Next runreader.go", ours+"store.(*decider).lookUp judge.go")},
		{"the checksum of a run of rows", Rows, false, stack("hash/crc32.castagnoliUpdate", ours+"persistence.(*RunWriter).Add runwriter.go",
			ours+"store.mergeSources runmerge.go", ours+"store.(*Store).mergeRows rowindexfill.go")},
		{"a row looked up", Rows, false, stack(ours+"persistence.(*Entries).Next runreader.go", ours+"store.(*rowSet).find rowindex.go")},
		{"a memtable", Rows, false, stack("bytes.Compare", peb+"/internal/arenaskl.(*Skiplist).Add", ours+"persistence.(*Batch).Apply batch.go")},
		{"a reply", Replies, false, stack(ours+"server/resp.(*Writer).Int writer.go", ours+"commands.(*Pipeline).answer")},
		{"garbage", Runtime, false, stack("runtime.scanobject", "runtime.gcDrain", "runtime.gcBgMarkWorker")},
		{"allocating", Runtime, false, stack("runtime.nextFreeFast", "runtime.mallocgc", ours+"store.newCounter counter.go")},
		{"the scheduler", Runtime, false, stack("runtime.nanotime", "runtime.casgstatus", "runtime.execute")},
		{"a thread asleep", Runtime, true, stack("runtime.futex", "runtime.futexsleep", "runtime.notesleep")},
		{"a thread woken by a write", Runtime, true, stack("runtime.futex", "runtime.notewakeup", "syscall.Write", ours+"persistence.(*file).Write")},
		{"polling", Runtime, true, stack(call, "internal/runtime/syscall/linux.EpollWait", "runtime.netpoll", "runtime.findRunnable")},
		{"receiving", Network, true, stack(call, "syscall.RawSyscall6", ours+"server/rawio.Receive", ours+"server.(*polled).Read")},
		{"sending", Network, true, stack(call, "syscall.RawSyscall6", ours+"server/rawio.Send", ours+"server.(*polled).write")},
		{"net's connections", Network, true, stack(call, "syscall.write", "internal/poll.(*FD).Write", "net.(*conn).Write", ours+"server.(*conn).write")},
		{"writing the log", Files, true, stack(call, "syscall.write", "os.(*File).Write", ours+"persistence.(*walFile).Write walfs.go")},
		{"syncing", Files, true, stack(call, "golang.org/x/sys/unix.Fdatasync", peb+"/vfs.(*linuxFile).SyncData", ours+"persistence.(*walFile).fsync")},
		{"a metrics page", Other, false, stack("encoding/json.Marshal", "net/http.(*conn).serve")},
		{"nothing", Other, false, nil},
		{"a type parameter", Deciding, false, stack(ours + "store.grow[go.shape.struct { a/b.c }] decide.go")},
	} {
		if k, call := attribute(tt.stack); k != tt.want || call != tt.call {
			t.Errorf("%s: %v, in a system call: %v; want %v, %v", tt.name, k, call, tt.want, tt.call)
		}
	}
}

// TestRecorded sorts a profile that was recorded at appendfsync always and
// pipeline 16.
func TestRecorded(t *testing.T) {
	f, err := os.Open("testdata/always-16.pb.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p, err := profile.Parse(f)
	if err != nil {
		t.Fatal(err)
	}
	s, err := Attribute(p)
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for k, share := range s.Of {
		sum += share
		if math.Abs(share-recorded[k]) > 0.0006 {
			t.Errorf("%v: %.3f, want %.3f", Kind(k), share, recorded[k])
		}
	}
	if math.Abs(sum-1) > 1e-9 || s.Seconds < 0.5 || s.InSystemCalls < s.Of[Network] || s.InSystemCalls > 0.8 {
		t.Errorf("the shares make %v of %v s; %v in system calls", sum, s.Seconds, s.InSystemCalls)
	}
	p.Sample = nil
	if _, err := Attribute(p); err == nil {
		t.Error("a profile without samples has shares")
	}
	p.SampleType[1].Type = "alloc_space"
	if _, err := Attribute(p); err == nil {
		t.Error("a heap profile has shares")
	}
}

// recorded are the kinds' shares in the recorded profile; what is not named is 0.
var recorded = [Kinds]float64{
	Requests: 0.137, Routing: 0.042, Finding: 0.116, Deciding: 0.053, Log: 0.011, Exact: 0.126, Replies: 0.032,
	Runtime: 0.053, Network: 0.221, Files: 0.211,
}

// TestKindsAreNamed expects a name and a description of every kind, no two
// alike, and rules that name each.
func TestKindsAreNamed(t *testing.T) {
	seen, used := map[string]bool{}, map[Kind]bool{Other: true}
	for _, r := range rules {
		used[r.user], used[r.kernel] = true, true
	}
	for k := range Kinds {
		if k.String() == "" || k.Description() == "" || seen[k.String()] || !used[k] {
			t.Errorf("kind %d: name %q, description %q; in the table: %v", k, k, k.Description(), used[k])
		}
		seen[k.String()] = true
	}
	prefixes := map[string]bool{}
	for _, r := range rules {
		if prefixes[r.prefix] {
			t.Errorf("%s stands twice in the table", r.prefix)
		}
		prefixes[r.prefix] = true
	}
}
