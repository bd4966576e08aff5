package commands

import (
	"strings"
	"testing"

	"github.com/fbfkv/fbfkv/resp"
	"github.com/fbfkv/fbfkv/store"
)

// A type of keys that only tests have, as the file of its commands declares it.
const (
	typeTally = 15
	tallyAdd  = store.Kind(typeTally) * 32
)

// The row is added before anything runs that looks at the table.
var _ = addType(typeTally, tallyType)

func addType(t store.Type, row keyType) bool {
	keyTypes[t] = row
	return true
}

var tallyType = keyType{name: "tally", encoding: "raw", category: "tally", commands: []Command{{
	Name: "tally.add", Arity: 3, Flags: Write | Fast, Keys: oneKey(keyReadUpdate), Group: "tally",
	ACL:   []string{"@tally"},
	Args:  []Arg{keyArg(), intArg("number")},
	Parse: parseTallyAdd, Reply: replyInt,
}}}

func parseTallyAdd(r *Request) error {
	n, ok := parseInt(r.Args[2])
	if !ok {
		return errNotInteger
	}
	r.Op.Kind, r.Op.Key, r.Op.Delta = tallyAdd, r.Args[1], n
	return nil
}

// TestKeyType: TYPE, OBJECT ENCODING, SCAN … TYPE and ACL know a type of keys by its row.
func TestKeyType(t *testing.T) {
	table := newTable(tallyType.commands)
	args := toArgs(strings.Fields("TALLY.ADD t 5"))
	c, refused := table.resolve(args)
	r := Request{Args: args, Op: new(store.Op)}
	if refused != "" || c.Parse(&r) != nil || r.Op.Kind != tallyAdd || string(r.Op.Key) != "t" ||
		r.Op.Delta != 5 {
		t.Errorf("%q, %+v", refused, r.Op)
	}
	if names, _ := newCatalog(table).Members("tally"); len(names) != 1 {
		t.Errorf("of the category are %v", names)
	}
	reply := func(answer func(*resp.Writer, *Result)) string {
		var w resp.Writer
		answer(&w, &Result{Op: &store.Op{Found: true, Type: typeTally, Value: 5}})
		shown, _ := show(string(w.Bytes()))
		return shown
	}
	for what, got := range map[string]string{
		":5":     reply(c.Reply),
		"+tally": reply(replyType),
		`"raw"`:  reply(Commands.find([]byte("object|encoding")).Reply),
	} {
		if got != what {
			t.Errorf("%s instead of %s", got, what)
		}
	}
	tallies := scanRequest{typeName: []byte("Tally")}
	if !tallies.wants([]byte("k"), typeTally) || tallies.wants([]byte("k"), store.TypeCounter) {
		t.Error("SCAN … TYPE does not know it")
	}
}
