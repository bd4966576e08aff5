package store_test

import (
	"fmt"
	"os"

	"github.com/fbfkv/fbfkv/store"
)

// A client increments, hears nothing, and sends the same operation again: it is applied once.
// An acknowledged operation is there after the directory is opened again.
func Example() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	s, err := store.Open(store.Options{Dir: dir})
	if err != nil {
		fmt.Println(err)
		return
	}

	var batch store.Batch // usually a client's pipeline
	for range 2 {         // the second is a retry
		op := batch.Add(store.CIncrBy)
		op.Key, op.ID, op.Delta = []byte("visits"), []byte("op-1"), 5
	}
	s.Execute(&batch)
	for _, op := range batch.Ops {
		fmt.Println(op.Value, "applied:", op.Applied, op.Err)
	}
	if err := s.Close(); err != nil {
		fmt.Println(err)
	}

	s, err = store.Open(store.Options{Dir: dir})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Close()
	batch.Reset()
	batch.Add(store.Get).Key = []byte("visits")
	again := batch.Add(store.CIncrBy)
	again.Key, again.ID, again.Delta = []byte("visits"), []byte("op-1"), 5
	s.Execute(&batch)
	fmt.Println("reopened:", batch.Ops[0].Value, "applied:", again.Applied)
	// Output:
	// 5 applied: true <nil>
	// 5 applied: false <nil>
	// reopened: 5 applied: false
}

// An EXACT table, as the default one is, tells what it knows of an operation without applying it.
func ExampleStore_Execute() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	s, err := store.Open(store.Options{Dir: dir})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Close()

	var batch store.Batch
	add := func(kind store.Kind, id string, delta int64) {
		op := batch.Add(kind)
		op.Key, op.ID, op.Delta = []byte("stock"), []byte(id), delta
	}
	add(store.CIncrBy, "delivery-7", 100)
	add(store.CIncrBy, "order-1", -3)
	add(store.CIncrBy, "order-1", -4) // another operation with an opid that is taken
	add(store.CSeen, "delivery-7", 0)
	add(store.CSeen, "order-2", 0)
	s.Execute(&batch)

	fmt.Println(batch.Ops[0].Value, batch.Ops[1].Value)
	fmt.Println(batch.Ops[2].Err)
	fmt.Println(batch.Ops[3].Found, batch.Ops[3].Seen.Result, batch.Ops[4].Found)
	// Output:
	// 100 97
	// opid was used with another delta
	// true 100 false
}
