package store

import (
	"errors"
	"testing"

	"github.com/fbfkv/fbfkv/store/part"
	"github.com/fbfkv/fbfkv/store/seen"
)

// FuzzStatePage reads pages of states. An accepted page is written again as it was, and is
// taken, or refused without harm.
func FuzzStatePage(f *testing.F) {
	parts := part.Parts{{Region: 1, Clock: 7, Live: 7, Cum: 3, Base: part.Base{Clock: 2, Cum: 1}}}
	id := stateID{[]byte("key"), []byte("id"),
		seen.Original{Delta: 3, Result: 3, UnixMs: 1e12, Dot: 5, Clip: 1}}
	uuid := stateID{[]byte("key"), []byte(someUUID),
		seen.Original{Delta: -3, Result: 3, UnixMs: 1e12, Dot: 6}}
	key := stateKey{key: []byte("key"), parts: parts, owed: []owedOp{{1, 2, 3}}}
	head := statePage{RegionSource: RegionSource{1,
		0}, group: 77, incarnation: 5, last: slots - 1, of: 1, seq: 9, wall: 1e12}
	first := head
	first.vector, first.items = []RegionTaken{{RegionSource{0, 0}, 4}}, key.appendTo(nil)
	first.next = statePlace{key: []byte("key"), pos: position(Slot([]byte("key")), 5)}.appendTo(nil)
	f.Add(first.appendTo(nil))
	second := head
	second.at, second.next = first.next, statePlace{ids: true}.appendTo(nil)
	f.Add(second.appendTo(nil))
	third := head
	third.at, third.items = second.next, uuid.appendTo(id.appendTo(nil))
	f.Add(third.appendTo(nil))
	third.next = statePlace{ids: true, table: 1, hash: 1 << 60}.appendTo(nil)
	f.Add(third.appendTo(nil))
	s := testStore(f, func(o *Options) { o.Partitions = 1 })
	must(f, s.SetRegions(RegionSet{Group: 77, Members: []RegionMember{
		{Region: 0, Name: "here", Partitions: 1, Incarnation: s.Meta().Incarnation},
		{Region: 1, Name: "there", Partitions: 1, Incarnation: 5},
	}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := decodeStatePage(b)
		if err != nil {
			if !errors.Is(err, ErrPulled) {
				t.Fatal(err)
			}
			return
		}
		if again := d.appendTo(nil); string(again) != string(b) {
			t.Fatalf("%x became %x", b, again)
		}
		if _, err := s.TakeState(b); err != nil && !errors.Is(err, ErrStream) {
			t.Fatal(err)
		}
	})
}

// FuzzDigest reads digests.
func FuzzDigest(f *testing.F) {
	d := RegionDigest{RegionSource: RegionSource{1,
		0}, Last: 31, At: 7, Era: 1, Seq: 9, Busy: true, Taken: []RegionTaken{{RegionSource{0, 0}, 4}},
		Sums: []DigestSum{{Sum: 1}, {2, [part.MaxRegions]uint64{3: 5}}}}
	f.Add(d.appendTo(nil))
	d.Last, d.Fine, d.Sums = 15, true, make([]DigestSum, DigestBuckets)
	f.Add(d.appendTo(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := DecodeDigest(b)
		if err == nil && string(d.appendTo(nil)) != string(b) {
			t.Fatalf("%x became %x", b, d.appendTo(nil))
		}
		if err != nil && !errors.Is(err, ErrPulled) {
			t.Fatal(err)
		}
	})
}
