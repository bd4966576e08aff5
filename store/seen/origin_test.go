package seen

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/persistence"
	"github.com/fbfkv/fbfkv/store/coding"
	"github.com/fbfkv/fbfkv/store/part"
)

// TestOrigin: a record says where its operation was applied and whether an own one was
// taken back, in all sizes; what is no such field is refused.
func TestOrigin(t *testing.T) {
	plain := Record{Key: []byte("k"), ID: []byte("i"), Original: Original{Delta: 1, Result: 2, UnixMs: 3}}
	for _, clip := range []int64{0, -4} {
		for _, region := range []part.Region{0, 1, part.MaxRegions - 1} {
			for _, dot := range []uint64{1, 255, 256, 1<<24 - 1, 1 << 24, 1 << 56, math.MaxUint64} {
				for _, taken := range []uint64{0, 1, 1 << 16, math.MaxUint64} {
					r := plain
					r.Original.Clip, r.Original.Other, r.Original.Region = clip, true, region
					r.Original.Dot, r.Original.Taken = dot, taken
					b := r.AppendTo(nil)
					if got, err := ReadRecord(b); err != nil || got.Original != r.Original {
						t.Errorf("%x: %+v, %v instead of %+v", b, got.Original, err, r.Original)
					}
				}
			}
		}
	}
	value := plain.AppendTo(nil)
	for name, fields := range map[string][]byte{
		"region 16":             {fieldOrigin, 2, 16, 1},
		"no dot":                {fieldOrigin, 1, 1},
		"a dot with zeros":      {fieldOrigin, 3, 1, 1, 0},
		"a dot of nine bytes":   {fieldOrigin, 10, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1},
		"nothing":               {fieldOrigin, 0},
		"taken back for nobody": {fieldTaken, 1, 1},
		"taken back: 0":         {fieldOrigin, 2, 1, 1, fieldTaken, 0},
		"twice":                 {fieldOrigin, 2, 1, 1, fieldOrigin, 2, 1, 1},
		"another order":         {fieldTaken, 1, 1, fieldOrigin, 2, 1, 1},
	} {
		if got, err := ReadRecord(slices.Concat(value, fields)); err == nil {
			t.Errorf("%s: %+v", name, got.Original)
		}
	}
}

// TestOriginCosts: an own operation's record says nothing of regions, whatever is known of
// its dot, and has the very bytes that it had before there were any; another region's takes
// at most 6 bytes more up to a sequence of 16 million, and one more for 256 times as many.
func TestOriginCosts(t *testing.T) {
	r := Record{Key: []byte("k"), ID: []byte("i"),
		Original: Original{Delta: 1, Result: 2, UnixMs: 3, Clip: -1, Dot: 77, Taken: 88}}
	own := r.AppendTo(nil)
	if got, want := hex.EncodeToString(own), "016b0169020406010101"; got != want {
		t.Errorf("%s instead of %s", got, want)
	}
	r.Original.Taken = 0
	for region := range part.Region(part.MaxRegions) {
		for _, tc := range []struct {
			dot  uint64
			more int
		}{{1, 4}, {1<<24 - 1, 6}, {1 << 24, 7}, {1<<32 - 1, 7}} {
			r.Original.Other, r.Original.Region, r.Original.Dot = true, region, tc.dot
			if more := len(r.AppendTo(nil)) - len(own); more != tc.more {
				t.Errorf("region %d, dot %d: %d bytes more, not %d", region, tc.dot, more, tc.more)
			}
		}
	}
	r.Original = Original{Delta: math.MinInt64, Result: math.MinInt64, UnixMs: math.MinInt64,
		Clip: math.MinInt64, Other: true, Region: part.MaxRegions - 1, Dot: math.MaxUint64,
		Taken: math.MaxUint64}
	if n := len(r.AppendTo(nil)) - len(r.Key) - len(r.ID); n > recordRoom {
		t.Errorf("a record may take %d bytes beside key and opid, more than %d", n, recordRoom)
	}
}

// TestRank: of two applications the earlier one counts; at the same time the one of the lower
// region, then the one of the lower sequence. An own one has the region that Before is given.
func TestRank(t *testing.T) {
	const self = 5
	ascending := []Original{
		{UnixMs: -1, Other: true, Region: 9, Dot: 9}, {UnixMs: 1, Other: true, Region: 2, Dot: 8},
		{UnixMs: 1, Other: true, Region: 4, Dot: 9}, {UnixMs: 1, Dot: 3}, {UnixMs: 1, Dot: 4},
		{UnixMs: 1, Other: true, Region: 6, Dot: 1}, {UnixMs: 2, Dot: 1},
		{UnixMs: 2, Other: true, Region: 6, Dot: 1}, {UnixMs: 2, Other: true, Region: 6, Dot: math.MaxUint64},
		{UnixMs: math.MaxInt64, Other: true, Region: 1},
	}
	for i := range ascending {
		for j := range ascending {
			if got := ascending[i].Before(&ascending[j], self); got != (i < j) {
				t.Errorf("%+v before %+v: %v", ascending[i], ascending[j], got)
			}
		}
	}
}

// version is the n-th record of one (key, opid), n from 1 on: own, then another region's
// that supersedes it, and so on.
func version(n uint64, logged int64) *Record {
	r := &Record{Table: 1, Hash: 7 << 50, Seq: n, Logged: logged, Key: []byte("k"), ID: []byte("twin"),
		Original: Original{Result: int64(n)}}
	if n > 1 {
		r.Original.Other, r.Original.Region, r.Original.Dot, r.Original.Taken = true, part.Region(n-2), 100*n,
			1
	}
	return r
}

// newest asks memory and then the runs, as a partition does.
func (o *owner) newest(t *testing.T) (Original, bool) {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	id := []byte("twin")
	if got, _, _, ok := o.rs.Find(math.MinInt64, math.MaxInt64, 7<<50, []byte("k"), id); ok {
		return got, true
	}
	var s Search
	s.Begin(&o.rs)
	s.Within(1, math.MinInt64, math.MaxInt64)
	must(t, s.Run(7<<50, []byte("k"), id, new(persistence.Entries)))
	return s.Found()
}

// TestSupersede: of up to three records of one operation the last one is found, wherever a
// run or a bundle ends between them, also behind a merge, in another process, and among
// others with the same hash.
func TestSupersede(t *testing.T) {
	const records = 3
	for cuts := range 1 << (2 * records) { // two bits a record: what follows it
		fs := vfs.NewMem()
		o := newOwner(t, fs, "data")
		check := func(n uint64, when string) {
			t.Helper()
			want := version(n, 0).Original
			if want.Own() {
				want.Dot = n
			}
			if got, ok := o.newest(t); !ok || got != want {
				t.Fatalf("cuts %b, record %d, %s: %+v, %v", cuts, n, when, got, ok)
			}
		}
		for n := uint64(1); n <= records; n++ {
			o.mu.Lock()
			other := version(n, int64(n))
			other.ID, other.Seq = fmt.Append(nil, "other", n), 2*n
			last := version(n, int64(n))
			last.Seq = 2*n + 1
			o.rs.SetMark()
			o.rs.Add(other)
			o.rs.Add(last)
			since, seq, _, ok := o.rs.FindSinceMark(last.Hash, last.Key, last.ID)
			o.mu.Unlock()
			if !ok || seq != last.Seq || since.Result != int64(n) {
				t.Fatalf("record %d since the mark: %+v, %d, %v", n, since, seq, ok)
			}
			switch cuts >> (2 * (n - 1)) & 3 {
			case 1: // a bundle ends
				o.rs.seal()
			case 2: // the index has them
				b := o.rs.bundles[len(o.rs.bundles)-1]
				b.index.update(b)
			case 3:
				o.save(t, Flush, int64(n))
			}
			if n == 1 {
				if got, ok := o.newest(t); !ok || got.Dot != 3 || !got.Own() {
					t.Fatalf("cuts %b: the own record: %+v, %v", cuts, got, ok)
				}
			} else {
				check(n, "added")
			}
		}
		o.save(t, Flush, records)
		check(records, "in runs")
		o.save(t, Tidy, records)
		if f := o.rs.Figures(); f.Runs != 1 || f.RunRecords != 2*records {
			t.Fatalf("%+v: not merged, or not all kept", f)
		}
		check(records, "merged")
		must(t, o.db.Close())
		o = newOwner(t, fs, "data")
		must(t, o.rs.Load())
		o.rs.Assign(0, func(uint32) bool { return true })
		check(records, "in another process")
		must(t, o.db.Close())
	}
}

// TestSupersedeAcrossTables: a key's record in another table, to which the key belonged, or
// belongs, does not hide a newer one, in whatever order the tables are asked.
func TestSupersedeAcrossTables(t *testing.T) {
	for newer := uint32(1); newer <= 2; newer++ {
		o := newOwner(t, vfs.NewMem(), "data")
		for n := range uint64(2) {
			r := version(n+1, int64(n))
			if r.Table = newer; n == 0 {
				r.Table = 3 - newer
			}
			o.mu.Lock()
			o.rs.Add(r)
			o.mu.Unlock()
			o.save(t, Flush, int64(n))
		}
		for _, order := range [][]uint32{{1, 2}, {2, 1}, {1, 2, 1}} {
			o.mu.Lock()
			var s Search
			s.Begin(&o.rs)
			for _, table := range order {
				s.Within(table, math.MinInt64, math.MaxInt64)
			}
			must(t, s.Run(7<<50, []byte("k"), []byte("twin"), new(persistence.Entries)))
			got, ok := s.Found()
			o.mu.Unlock()
			if !ok || got != version(2, 0).Original {
				t.Errorf("newer in table %d, asked in the order %v: %+v, %v", newer, order, got, ok)
			}
		}
	}
}

// TestSearchFails: a search that cannot read all runs has found nothing, for the unread
// ones may have a newer record.
func TestSearchFails(t *testing.T) {
	fs := vfs.NewMem()
	o := newOwner(t, fs, "data")
	o.mu.Lock()
	o.rs.Add(version(1, 1))
	o.mu.Unlock()
	o.save(t, Flush, 1)
	// A value that is not a record's, as damage leaves it, in a run of its own.
	run := o.rs.NewRun(2)
	run.FirstSeq, run.LastSeq = 2, 2
	w, err := o.db.NewRun(run)
	must(t, err)
	must(t, w.Add(7<<50, 2,
		bytes.Join([][]byte{coding.AppendBytes(nil, []byte("k")), coding.AppendBytes(nil, []byte("twin")),
			{0x80}}, nil)))
	run, err = w.Finish(run)
	must(t, err)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.rs.runs[2] = append(o.rs.runs[2], run)
	var s Search
	s.Begin(&o.rs)
	s.Within(1, math.MinInt64, math.MaxInt64)
	s.Within(2, math.MinInt64, math.MaxInt64)
	if err := s.Run(7<<50, []byte("k"), []byte("twin"), new(persistence.Entries)); err == nil {
		t.Error("a damaged record was read")
	}
	if got, ok := s.Found(); ok {
		t.Errorf("%+v was found", got)
	}
}
