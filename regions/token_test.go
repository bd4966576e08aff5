package regions

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/fbfkv/fbfkv/store"
)

// TestToken: a region that has what a token names shows what was written before it, of the key's partition
// or of all; until then it waits.
func TestToken(t *testing.T) {
	all := newRegions(t, 4, 2)
	nodes := make([]*Node, len(all))
	for i, r := range all {
		n, err := Open(r.options(nil))
		must(t, err)
		defer n.Close()
		set := setOf(all, i)
		for j, r := range all {
			set.Members[j].Address = r.server.address()
		}
		must(t, n.Change(set))
		nodes[i] = n
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	own, _ := nodes[0].Members()
	first := own.Members[0].Name
	pause(t, nodes[1], first)
	for n := range 50 {
		key := fmt.Sprint("k", n)
		must(t, all[0].once(key, "op", 5).Err)
		for _, slot := range []int{AnySlot, int(store.Slot([]byte(key)))} {
			token, err := nodes[0].Token(slot)
			must(t, err)
			if has, err := nodes[0].Await(ended, token, slot); err != nil || !has {
				t.Fatalf("the region itself: %v, %v", has, err)
			}
			if n%10 > 0 {
				if has, err := nodes[1].Await(t.Context(), token, slot); err != nil || !has {
					t.Fatal(has, err)
				} else if got := all[1].value(key); got != 5 {
					t.Fatalf("%s is %d where the token was awaited", key, got)
				}
				continue
			}
			if has, err := nodes[1].Await(ended, token, slot); has || err != nil {
				t.Fatalf("it has what it does not read: %v, %v", has, err)
			}
		}
		if n%10 == 0 {
			must(t, nodes[1].Resume(first))
		} else if n%10 == 9 {
			pause(t, nodes[1], first)
		}
	}
	must(t, nodes[1].Resume(first))

	one := int(store.Slot([]byte("k1")))
	good, err := nodes[0].Token(one)
	must(t, err)
	decoded, err := decodeToken(good)
	must(t, err)
	changed := func(change func(*token)) string {
		t := decoded
		t.at = slices.Clone(t.at)
		change(&t)
		return t.encode()
	}
	for text, want := range map[string]string{
		"":                                       "not a token",
		good[:len(good)-1]:                       "not a token",
		good + "AAAA":                            "not a token",
		strings.ToUpper(good):                    "not a token",
		strings.Repeat("A", 1<<20):               "not a token",
		changed(func(t *token) { t.group++ }):    "does not know",
		changed(func(t *token) { t.region = 9 }): "does not know",
		changed(func(t *token) { t.incarnation++ }):             "other data",
		changed(func(t *token) { t.at = nil }):                  "does not cover",
		changed(func(t *token) { t.at[0].Partition = 1 << 13 }): "does not cover",
	} {
		if has, err := nodes[1].Await(ended, text, AnySlot); has || !errors.Is(err, ErrMember) ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: %v, %v; want an error that says: %s", text, has, err, want)
		}
	}
	if _, err := nodes[1].Await(ended, good, (one+slots/2)%slots); err == nil {
		t.Error("the token of one key is good for another partition")
	}
	must(t, nodes[1].Remove(own.Members[1].Name, first))
	if _, err := nodes[1].Await(ended, good, one); err == nil || !strings.Contains(err.Error(), "removed") {
		t.Error(err)
	}
}

// FuzzToken: a token is read as it is written, or refused.
func FuzzToken(f *testing.F) {
	f.Add((&token{group: 1, incarnation: 2, region: 3, at: []store.Behind{{Partition: 1, Seq: 1 << 40},
		{Partition: 7}}}).encode())
	f.Fuzz(func(t *testing.T, text string) {
		if got, err := decodeToken(text); err == nil && got.encode() != text {
			t.Errorf("%q is read as %+v", text, got)
		}
	})
}
