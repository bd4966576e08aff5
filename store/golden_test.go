package store

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

var goldenUpdate = flag.Bool("golden.update", false, "make testdata/golden again, after a change of the "+
	"format that is not released yet")

// goldenName is the golden directory of this format, beside which its answers
// are. From the first release on, one of each released format stays.
const goldenName = "testdata/golden/format1"

// TestGolden opens each golden directory and expects the answers that the code
// that wrote it gave: values, the original results of duplicates, refusals,
// filters, tables, expiries.
func TestGolden(t *testing.T) {
	if *goldenUpdate {
		makeGolden(t)
	}
	archives, err := filepath.Glob("testdata/golden/*.tar.gz")
	must(t, err)
	if len(archives) == 0 {
		t.Fatal("no golden directory")
	}
	for _, archive := range archives {
		t.Run(filepath.Base(archive), func(t *testing.T) {
			fs := vfs.NewMem()
			unpack(t, archive, fs)
			want, err := os.ReadFile(strings.TrimSuffix(archive, ".tar.gz") + ".txt")
			must(t, err)
			if r := checkSound(t, fs, "data"); r.Runs == 0 || r.Snapshots == 0 || r.Sections == 0 {
				t.Errorf("the golden directory lacks something: %+v", r)
			}
			for range 2 { // as it was, and after this release has written it
				s := openGolden(t, fs)
				if got := goldenAnswers(s); got != string(want) {
					t.Fatalf("answers differ:\n%s", firstDifference(got, string(want)))
				}
				must(t, s.Close())
				checkSound(t, fs, "data")
			}
		})
	}
}

// openGolden opens the directory at the wall time at which it was made.
func openGolden(t *testing.T, fs vfs.FS) *Store {
	t.Helper()
	clock := newFakeClock()
	return testStore(t, func(o *Options) { o.FS, o.Clock = fs, clock.now })
}

// makeGolden writes a directory that has a little of everything: both modes,
// adaptive and FIXED filter keys, dropped and altered tables, expiries, runs,
// two snapshots, refreshed filters, and a log that goes on behind them.
func makeGolden(t *testing.T) {
	fs := vfs.NewMem()
	clock := newFakeClock()
	clock.step(-10 * time.Minute)
	s := testStore(t, func(o *Options) { o.FS, o.Clock = fs, clock.now })
	must(t, s.CreateTable(TableOptions{Name: "approx", Prefix: "approx:", Mode: Approx, Window: time.Hour}))
	must(t, s.CreateTable(TableOptions{Name: "timed", Prefix: "timed:", IDTime: IDTimeMS, Skew: DefaultSkew,
		Window: time.Hour}))
	must(t, s.CreateTable(TableOptions{Name: "gone", Prefix: "gone:", Window: time.Hour}))
	must(t, s.AlterTable(DefaultTable, TableChange{Window: ptr(time.Hour)}))
	do(s, Op{Kind: FBFReserve, Key: []byte("adaptive"),
		Object: &FilterOptions{Window: time.Hour, Error: 1e-4, Past: 3}})
	do(s, Op{Kind: FBFReserve, Key: []byte("fixed"),
		Object: &FilterOptions{Fixed: true, Bits: 4096, Hashes: 3, Past: 2, Refresh: 5 * time.Minute}})
	for round := range goldenRounds {
		for _, op := range goldenOps(round) {
			if op = do(s, op); op.Err != nil {
				t.Fatal(op.Err)
			}
		}
		for _, op := range goldenUUIDOps(round) {
			must(t, do(s, op).Err)
		}
		clock.advance(10 * time.Minute / goldenRounds)
		for _, p := range s.partitions {
			s.refreshDue(p)
		}
		switch round {
		case 2, 4:
			must(t, s.Snapshot())
		case 3:
			must(t, s.AlterTable("approx", TableChange{Error: ptr(1e-9)}))
			must(t, s.DropTable("gone"))
		}
	}
	answers := goldenAnswers(s)
	must(t, s.CloseNow())
	must(t, os.MkdirAll(filepath.Dir(goldenName), 0o755))
	must(t, os.WriteFile(goldenName+".txt", []byte(answers), 0o644))
	must(t, os.WriteFile(goldenName+".tar.gz", pack(t, fs), 0o644))
}

const goldenRounds = 6

// goldenOps are the operations of one round.
func goldenOps(round int) (ops []Op) {
	for i := range 12 {
		id := fmt.Appendf(nil, "op-%d-%d", round, i)
		ops = append(ops,
			Op{Kind: CIncrBy, Key: fmt.Appendf(nil, "exact:%d", i%5), ID: id, Delta: int64(i*round - 7)},
			Op{Kind: CIncrBy, Key: fmt.Appendf(nil, "approx:%d", i%5), ID: id, Delta: 1},
			Op{Kind: CMIncrBy, Keys: [][]byte{[]byte("many:1"), fmt.Appendf(nil, "many:%d", 2+i%3)},
				Deltas: []int64{1, -2}, ID: id},
			Op{Kind: CIncrBy, Key: []byte("gone:1"), ID: id, Delta: 1},
			Op{Kind: CIncrBy, Key: []byte("timed:1"),
				ID:    fmt.Appendf(nil, "%d-%d-%d", newFakeClock().wall-int64(600-100*round)*1000, round, i),
				Delta: 3},
		)
	}
	item := fmt.Appendf(nil, "item-%d", round)
	return append(ops,
		Op{Kind: FBFAdd, Key: []byte("adaptive"), Keys: [][]byte{item}},
		Op{Kind: FBFAdd, Key: []byte("fixed"), Keys: [][]byte{item}},
		Op{Kind: Set, Key: fmt.Appendf(nil, "set:%d", round), Delta: 1 << 40, Flags: HasExpire,
			ExpireAt: newFakeClock().wall + int64(round)*3_600_000 + 60_000},
		Op{Kind: IncrBy, Key: []byte("plain"), Delta: 5},
		bounded("exact:bounded", fmt.Sprint("op-", round), 3, 0, 10, Saturate),
		Op{Kind: Del, Keys: [][]byte{fmt.Appendf(nil, "exact:%d", round%5)}},
	)
}

// goldenUUIDOps returns two operations of a round: the opid of one is a UUID, the opid of the
// other has just the length of one.
func goldenUUIDOps(round int) (ops []Op) {
	for i, format := range []string{"01a1fdcc-4bbc-70ea-a1d6-03cc3a62b4%02x",
		"01A1FDCC-4BBC-70EA-A1D6-03CC3A62B4%02X"} {
		ops = append(ops, Op{Kind: CIncrBy, Key: []byte("uuid:1"), ID: fmt.Appendf(nil, format, 7*round),
			Delta: int64(i + 1)})
	}
	return ops
}

// goldenAnswers asks everything without changing anything, one answer a line.
func goldenAnswers(s *Store) string {
	var b strings.Builder
	ask := func(name string, op Op) { fmt.Fprintf(&b, "%s: %s\n", name, outcome(do(s, op))) }
	for round := range goldenRounds {
		for i, op := range goldenOps(round) {
			switch op.Kind {
			case CIncrBy, CMIncrBy, CIncrEx:
				ask(fmt.Sprintf("retry %d.%d", round, i), op)
				op.Delta++
				if op.Kind != CMIncrBy {
					ask("  with another delta", op)
					ask("  CSEEN", Op{Kind: CSeen, Key: op.Key, ID: op.ID})
				}
			case FBFAdd:
				ask(fmt.Sprintf("%s has %s", op.Key, op.Keys[0]),
					Op{Kind: FBFExists, Key: op.Key, Keys: op.Keys})
			}
		}
		for _, op := range goldenUUIDOps(round) {
			ask(fmt.Sprintf("retry %s", op.ID), op)
			ask("  CSEEN", Op{Kind: CSeen, Key: op.Key, ID: op.ID})
		}
	}
	for _, key := range []string{"adaptive", "fixed"} {
		ask("CARD "+key, Op{Kind: FBFCard, Key: []byte(key)})
		ask("not in "+key, Op{Kind: FBFExists, Key: []byte(key), Keys: [][]byte{[]byte("never added")}})
	}
	ask("stale", Op{Kind: CIncrBy, Key: []byte("timed:1"), ID: []byte("1000000000000-x"), Delta: 1})
	b.WriteString(goldenKeys(s))
	for _, o := range s.Tables() {
		// As it was printed before there were these options.
		newer := " Regions:0 Scale:0 Min:{N:0 Set:false Points:0} Max:{N:0 Set:false Points:0} Top:0}"
		fmt.Fprintln(&b, strings.Replace(fmt.Sprintf("table %+v", o), newer, "}", 1))
	}
	return b.String()
}

// outcome renders what an operation answered.
func outcome(op Op) string {
	switch {
	case op.Err != nil:
		return op.Err.Error()
	case op.Kind == CMIncrBy:
		return fmt.Sprintf("%v, applied %v", op.Values, op.Applied)
	case op.Kind == CIncrBy:
		return fmt.Sprintf("%d, applied %v", op.Value, op.Applied)
	case op.Kind == CSeen && op.Exact:
		if op.Seen.Other || op.Seen.Taken != 0 {
			return fmt.Sprintf("%v %+v", op.Found, op.Seen)
		}
		return fmt.Sprintf("%v {Delta:%d Result:%d UnixMs:%d Clip:%d}", op.Found, op.Seen.Delta,
			op.Seen.Result, op.Seen.UnixMs, op.Seen.Clip)
	case op.Kind == CSeen:
		return fmt.Sprintf("%v", op.Found)
	case op.Kind == FBFExists:
		return fmt.Sprintf("%v", op.Founds)
	}
	return fmt.Sprintf("%d", op.Value)
}

// goldenKeys lists every key with its value and expiry.
func goldenKeys(s *Store) string {
	var keys []string
	for cursor := uint64(0); ; {
		next, err := s.Scan(cursor, 10, func(key []byte, _ Type) { keys = append(keys, string(key)) })
		if err != nil {
			return err.Error()
		}
		if cursor = next; cursor == 0 {
			break
		}
	}
	slices.Sort(keys)
	var b strings.Builder
	n, _ := s.DBSize()
	fmt.Fprintf(&b, "DBSIZE %d\n", n)
	for _, key := range slices.Compact(keys) {
		v := do(s, Op{Kind: Get, Key: []byte(key)})
		e := do(s, Op{Kind: ExpireTime, Key: []byte(key)})
		fmt.Fprintf(&b, "key %s: %d %v, expires %d\n", key, v.Value, v.Err, e.Value)
	}
	return b.String()
}

// pack makes a tar.gz of the data directory.
func pack(t *testing.T, fs vfs.FS) []byte {
	t.Helper()
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	must(t, err)
	w := tar.NewWriter(z)
	for line := range strings.Lines(treeOf(t, fs, "data")) {
		name, _, _ := strings.Cut(line, " ")
		f, err := fs.Open(name)
		must(t, err)
		content, err := io.ReadAll(f)
		must(t, errors.Join(err, f.Close()))
		must(t, w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content))}))
		_, err = w.Write(content)
		must(t, err)
	}
	must(t, errors.Join(w.Close(), z.Close()))
	return b.Bytes()
}

// unpack writes the files of a tar.gz.
func unpack(t *testing.T, archive string, fs vfs.FS) {
	t.Helper()
	f, err := os.Open(archive)
	must(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	must(t, err)
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		must(t, err)
		must(t, fs.MkdirAll(fs.PathDir(h.Name), 0o755))
		w, err := fs.Create(h.Name, vfs.WriteCategoryUnspecified)
		must(t, err)
		_, err = io.Copy(w, r)
		must(t, errors.Join(err, w.Close()))
	}
}

func firstDifference(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(g), len(w)) {
		if g[i] != w[i] {
			return fmt.Sprintf("line %d: got  %s\nline %d: want %s", i+1, g[i], i+1, w[i])
		}
	}
	return fmt.Sprintf("%d lines instead of %d", len(g), len(w))
}
