package store

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// TestPristine: a directory is as good as none until somebody has done something in it that
// a deletion would undo, or make possible again.
func TestPristine(t *testing.T) {
	for what, use := range map[string]func(s *Store){
		"nothing": func(*Store) {},
		"a counter": func(s *Store) {
			cincr(s, "k", "id", 1)
		},
		"a deleted counter, whose id is remembered": func(s *Store) {
			cincr(s, "k", "id", 1)
			do(s, Op{Kind: Del, Keys: [][]byte{[]byte("k")}})
		},
		"a table": func(s *Store) {
			if err := s.CreateTable(TableOptions{Name: "t", Prefix: "t:"}); err != nil {
				t.Error(err)
			}
		},
		"a flush": func(s *Store) { do(s, Op{Kind: FlushAll}) },
	} {
		t.Run(what, func(t *testing.T) {
			fs := vfs.NewMem()
			open := func() *Store { return testStore(t, func(o *Options) { o.FS = fs }) }
			s := open()
			use(s)
			for range 2 {
				if got := s.Pristine(); got != (what == "nothing") {
					t.Errorf("pristine: %v", got)
				}
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				s = open()
			}
		})
	}
}
