package fbfkv

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"
)

// TestOpText: an operation of any bytes survives as text and in JSON.
func TestOpText(t *testing.T) {
	for _, op := range []Op{
		{Key: "page:home", ID: newUUID(time.UnixMilli(1700000000000)), Delta: -1 << 63, At: 1700000000000},
		{Key: "a b%\n\xff+ü", ID: "\x00 \"'", Delta: 1<<63 - 1},
	} {
		stored, err := json.Marshal(op)
		if err != nil {
			t.Fatal(err)
		}
		var read Op
		if err := json.Unmarshal(stored, &read); err != nil || read != op {
			t.Errorf("%s was read as %#v, %v", stored, read, err)
		}
	}
	// What the packages of the other languages write.
	want := Op{Key: "a b%ü", ID: "op-1", Delta: -5, At: 1700000000000}
	if op, err := ParseOp("a%20b%25%C3%BC -5 op-1 1700000000000"); err != nil || op != want {
		t.Errorf("%#v %v", op, err)
	}
}

// TestOpTextDamaged: what is no operation is refused.
func TestOpTextDamaged(t *testing.T) {
	for _, text := range []string{"", "k", "k 1 id", "k 1 id 0 0", " 1 id 0", "k 1  0", "k x id 0",
		"k 1 id -1",
		"k%2 1 id 0", "k 9223372036854775808 id 0", "k 1 id 0 "} {
		if op, err := ParseOp(text); err == nil {
			t.Errorf("%q was read as %#v", text, op)
		}
	}
}

// FuzzParseOp: whatever is read is written as something that is read as the same.
func FuzzParseOp(f *testing.F) {
	f.Add("page%3Ahome 1 id 1700000000000")
	f.Fuzz(func(t *testing.T, text string) {
		op, err := ParseOp(text)
		if err != nil {
			return
		}
		if again, err := ParseOp(op.String()); err != nil || again != op {
			t.Errorf("%q: %#v, then %#v, %v", text, op, again, err)
		}
	})
}

// TestUUID: an opid is a UUIDv7 with its time, and no two are the same.
func TestUUID(t *testing.T) {
	now := time.UnixMilli(0x018f3c2e7b1a)
	var ids []string
	for range 1000 {
		id := newUUID(now)
		if len(id) != 36 || id[:15] != "018f3c2e-7b1a-7" || id[18] != '-' || id[23] != '-' ||
			id[19] != '8' && id[19] != '9' && id[19] != 'a' && id[19] != 'b' {
			t.Fatal(id)
		}
		ids = append(ids, id)
	}
	slices.Sort(ids)
	if len(slices.Compact(ids)) != 1000 {
		t.Error("an id came twice")
	}
}

func ExampleOp() {
	op := Op{Key: "page:home", ID: "order-77", Delta: 3, At: 1700000000000}
	fmt.Println(op)
	// Output: page:home 3 order-77 1700000000000
}
