package main

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
)

// TestKeyDistributions compares how often keys are picked with how often they should be.
func TestKeyDistributions(t *testing.T) {
	const picks = 400_000
	for text, n := range map[string]int{"hot": 1, "uniform:7": 7, "uniform:1000": 1000} {
		k, err := parseKeys(text)
		if err != nil {
			t.Fatal(err)
		}
		got := make([]float64, n)
		for i := range uint64(picks) {
			got[k.pick(mix(i))]++
		}
		want := picks / float64(n)
		if math.Abs(slices.Max(got)-want)+math.Abs(slices.Min(got)-want) > 12*math.Sqrt(want)+1 {
			t.Errorf("%s: keys were picked %v to %v times, want %.0f", text, slices.Min(got), slices.Max(got), want)
		}
	}
}

func TestBadKeys(t *testing.T) {
	for _, text := range []string{"", "cold", "uniform", "uniform:0", "uniform:-1", "uniform:x", "uniform:5:1", "sequence", "hot:1", "uniform:100000001"} {
		if _, err := parseKeys(text); err == nil || !strings.Contains(err.Error(), "--keys") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// testFrame is a request of CINCRBY for keys and a format.
func testFrame(k *keys, format idFormat) *frame {
	return encode(workloads[0].words, digitsFor(k.count()), format.length(), "p:", "")
}

// TestStreams makes requests as connections do: well formed, every opid used
// once, and the same again from the same seed.
func TestStreams(t *testing.T) {
	k, err := parseKeys("uniform:1000")
	if err != nil {
		t.Fatal(err)
	}
	for name, format := range map[string]idFormat{"uuidv7": uuidv7, "client-seq": clientSeq} {
		f := testFrame(k, format)
		seen := map[string]bool{}
		var all [2][]string
		for round := range all {
			for connection := range 20 {
				s := newStream(5, connection, 20, k, format)
				for range 500 {
					s.put(f, f.bytes, 1_700_000_000_123)
					all[round] = append(all[round], string(f.bytes))
				}
			}
		}
		for i, request := range all[0] {
			words := strings.Split(request, "\r\n")
			if len(words) != 10 || words[2] != "CINCRBY" || len(words[4]) != len("p:000") || len(words[6]) != format.length() {
				t.Fatalf("%s: %q", name, request)
			}
			id := words[6]
			if seen[id] {
				t.Fatalf("%s: opid %s was made twice", name, id)
			}
			seen[id] = true
			if format == uuidv7 {
				u, err := uuid.Parse(id)
				if err != nil || u.Version() != 7 || u.Variant() != uuid.RFC4122 {
					t.Fatalf("%s: %v, version %d", id, err, u.Version())
				}
				if seconds, nanos := u.Time().UnixTime(); seconds*1000+nanos/1e6 != 1_700_000_000_123 {
					t.Fatalf("%s: %d s %d ns", id, seconds, nanos)
				}
			}
			if request != all[1][i] {
				t.Fatalf("%s: operation %d is not the same again: %q, %q", name, i, request, all[1][i])
			}
		}
		s := newStream(6, 0, 1, k, format)
		if s.put(f, f.bytes, 1_700_000_000_123); seen[strings.Split(string(f.bytes), "\r\n")[6]] {
			t.Errorf("%s: another seed gave the same opid", name)
		}
	}
}

// TestSequence has a run's connections reach each counter once, then again.
func TestSequence(t *testing.T) {
	k, err := parseKeys("sequence:10")
	if err != nil {
		t.Fatal(err)
	}
	o := options{Connections: 4, Count: 20}
	f := testFrame(k, clientSeq)
	seen := map[uint32]int{}
	for connection := range o.Connections {
		s := newStream(7, connection, o.Connections, k, clientSeq)
		for range o.quota(connection) {
			key := s.put(f, f.bytes, 0)
			if name := "p:" + strconv.Itoa(int(key)); !strings.Contains(string(f.bytes), "\r\n"+name+"\r\n") {
				t.Fatalf("key %d: %q", key, f.bytes)
			}
			seen[key]++
		}
	}
	for key := range uint32(10) {
		if seen[key] != 2 {
			t.Errorf("counter %d was reached %d times", key, seen[key])
		}
	}
}

// TestSchedule keeps an open loop's appointments with a clock of the test's.
func TestSchedule(t *testing.T) {
	s := schedule{start: 1000, interval: 250}
	for _, step := range []struct {
		now         int64
		limit, want int
	}{
		{0, 10, 0}, {-5000, 10, 0}, {999, 10, 0}, {1000, 10, 1}, {1100, 10, 0}, {1250, 10, 1}, {1600, 10, 1},
		{11_000, 10, 10}, {11_000, 100, 28}, {11_000, 100, 0},
	} {
		n := s.due(step.now, step.limit)
		if n != step.want {
			t.Fatalf("at %d: %d due, want %d", step.now, n, step.want)
		}
		if n == 0 {
			continue
		}
		first := s.take(n)
		if s.at(first+int64(n)-1) > step.now {
			t.Fatalf("at %d: operation %d is due only at %d", step.now, first+int64(n)-1, s.at(first+int64(n)-1))
		}
	}
	if got := s.at(s.next); got != 11_250 {
		t.Errorf("the next is due at %d", got)
	}
}

// TestRecorder has each latency in its interval, and all in total.
func TestRecorder(t *testing.T) {
	r := newRecorder(1e9, int64(time.Second))
	r.record(5e8, 1e6, 100) // before the measurement
	r.record(1.5e9, 1e6, 10)
	r.record(1.6e9, 3e6, 10)
	r.record(3.5e9, 2e6, 30) // the second interval is empty
	r.flush()
	if n := r.total.TotalCount(); n != 50 {
		t.Errorf("%d operations in all", n)
	}
	if len(r.series) != 3 || r.series[1].Max != 0 || r.series[2].Max < 0.00199 {
		t.Fatalf("%+v", r.series)
	}
	if got := r.series[0]; math.Abs(got.P50-0.001) > 1e-5 || math.Abs(got.P99-0.003) > 1e-5 || got.Second != 1 {
		t.Errorf("%+v", got)
	}
}
