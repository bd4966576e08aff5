package persistence

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// TestPages: pages come in their order, each partition's by themselves, are replaced, and are
// deleted with their object; what is no page is damage.
func TestPages(t *testing.T) {
	db := mustOpen(t, testOptions(vfs.NewMem()))
	defer mustClose(t, db)
	page := func(object uint64, number uint32, seq uint64) Page {
		return Page{Object: object, Number: number, Seq: seq,
			Content: bytes.Repeat([]byte{byte(seq)}, int(number))}
	}
	read := func(partition uint16) (found []string) {
		t.Helper()
		err := db.Pages(partition, func(p Page) error {
			found = append(found, fmt.Sprint(p.Object, "-", p.Number, " at ", p.Seq, " ", p.Content))
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	mustChange(t, db, func(c *Changes) {
		for _, p := range []Page{page(7, 1, 9), page(7, 0, 8), page(256, 3, 300), page(8, 0, 8),
			page(1<<48, 0, 5)} {
			c.PutPage(3, p)
		}
		c.PutPage(2, page(7, 0, 7))
		c.PutPage(4, page(7, 0, 7))
		c.PutPage(3, page(7, 1, 10))
	})
	if got, want := read(3), []string{"7-0 at 8 []", "7-1 at 10 [10]", "8-0 at 8 []",
		"256-3 at 300 [44 44 44]", fmt.Sprint(uint64(1)<<48, "-0 at 5 []")}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	mustChange(t, db, func(c *Changes) { c.DropPages(3, 7, 7) })
	if got := read(3); len(got) != 3 {
		t.Errorf("%q", got)
	}
	mustChange(t, db, func(c *Changes) { c.DropPages(3, 0, 256) })
	if got := read(3); len(got) != 1 {
		t.Errorf("%q", got)
	}
	if len(read(2)) != 1 || len(read(4)) != 1 || len(read(5)) != 0 {
		t.Error("pages of other partitions")
	}
	stop := errors.New("stop")
	if err := db.Pages(2, func(Page) error { return stop }); !errors.Is(err, stop) {
		t.Error(err)
	}
	mustChange(t, db, func(c *Changes) {
		if err := c.b.Set([]byte{kindPage, 0, 2, 'x'}, nil, nil); err != nil {
			t.Fatal(err)
		}
	})
	if err := db.Pages(2, func(Page) error { return nil }); !errors.Is(err, ErrCorrupt) {
		t.Error(err)
	}
}
