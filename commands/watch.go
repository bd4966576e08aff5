package commands

import (
	"github.com/fbfkv/fbfkv/store"
)

// watches are the keys that a connection watches, with what the store noted of
// them. EXEC hands them back to it as the first operation of the transaction,
// which decides under the transaction's own locks whether the rest is done.
type watches struct {
	keys  [][]byte
	notes []int64 // two for each key
	index map[string]struct{}
	size  int
}

// watchCost is what a watched key costs beside its bytes.
const watchCost = 128

// add watches keys from now on. One that is watched already keeps what was
// noted first, as in Redis.
func (ws *watches) add(st *store.Store, keys [][]byte) error {
	var b store.Batch
	op := b.Add(store.Watch)
	size := ws.size
	for _, k := range keys {
		if !checkKey(k) {
			return store.ErrKeySize
		}
		if _, known := ws.index[string(k)]; !known {
			op.Keys = append(op.Keys, k)
			size += len(k) + watchCost
		}
	}
	if size > maxQueued || len(ws.keys)+len(op.Keys) > store.MaxKeys {
		return errTooManyWatched
	}
	st.Execute(&b)
	if op.Err != nil {
		return op.Err
	}
	if ws.index == nil {
		ws.index = make(map[string]struct{}, len(op.Keys))
	}
	for i, k := range copyArgs(op.Keys) {
		if _, known := ws.index[string(k)]; known {
			continue // it was there twice
		}
		ws.index[string(k)] = struct{}{}
		ws.keys = append(ws.keys, k)
		ws.notes = append(ws.notes, op.Values[2*i:2*i+2]...)
	}
	ws.size = size
	return nil
}

// clear watches nothing any more.
func (ws *watches) clear() { *ws = watches{} }

// guard adds the question whether the keys are unchanged to a batch and returns
// its index, -1 if no key is watched. The caller says how many operations
// depend on it.
func (ws *watches) guard(b *store.Batch) int {
	if len(ws.keys) == 0 {
		return -1
	}
	op := b.Add(store.IfUnchanged)
	op.Keys = append(op.Keys, ws.keys...)
	op.Deltas = append(op.Deltas, ws.notes...)
	return len(b.Ops) - 1
}

// doWatch is WATCH key [key …].
func doWatch(c *Context) {
	if c.tx.open {
		c.fail(errWatchInMulti)
		return
	}
	c.ok(c.watch.add(c.Store, c.Args[1:]))
}

// doUnwatch is UNWATCH.
func doUnwatch(c *Context) {
	c.watch.clear()
	c.W.Status("OK")
}

// watchCommands make a transaction depend on keys that must not change.
var watchCommands = []Command{
	{
		Name: "watch", Arity: -2, Flags: NoScript | Loading | Stale | Fast | AllowBusy | immediate, Keys: manyKeys(keyLook),
		Group: "transactions", ACL: []string{"@transaction"}, Since: "2.2.0", Complexity: "O(N), where N is the number of keys",
		Summary: "Makes EXEC answer null and do nothing if one of the keys changes before.",
		Args:    []Arg{multi(keyArg())}, Run: doWatch,
	},
	{
		Name: "unwatch", Arity: 1, Flags: NoScript | Loading | Stale | Fast | AllowBusy, Group: "transactions",
		ACL: []string{"@transaction"}, Since: "2.2.0", Complexity: "O(1)",
		Summary: "Forgets the watched keys, like EXEC and DISCARD.", Run: doUnwatch,
	},
}
