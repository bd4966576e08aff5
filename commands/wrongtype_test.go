package commands

import "testing"

// TestWritesOfFilterKeys plays every command that writes a counter to the key of
// a filter: as with a key of another type in Redis, what reads the old value is
// refused and changes nothing, and what only overwrites does so.
func TestWritesOfFilterKeys(t *testing.T) {
	const (
		wrongType = "-WRONGTYPE Operation against a key holding the wrong kind of value"
		notInt    = "-ERR value is not an integer or out of range: a counter holds a signed 64-bit " +
			"integer only"
		ok = "+OK"
	)
	c := dial(t, newStore(t), &Server{})
	for _, tt := range []struct {
		say, want string
		gone      bool // the filter was overwritten
	}{
		{say: "GETSET f 5", want: wrongType},
		{say: "GETSET f x", want: notInt},
		{say: "SET f 5 GET", want: wrongType},
		{say: "SET f 5 NX GET", want: wrongType},
		{say: "SET f 5 GET XX", want: wrongType},
		{say: "SET f 5 GET EX 100", want: wrongType},
		{say: "SET f 5 GET PXAT 1", want: wrongType},
		{say: "SET f 5 GET KEEPTTL", want: wrongType},
		{say: "SET f x GET", want: notInt},
		{say: "SET f 5", want: ok, gone: true},
		{say: "SET f 5 XX", want: ok, gone: true},
		{say: "SET f 5 EX 100", want: ok, gone: true},
		{say: "SET f 5 NX", want: "nil"},
		{say: "SET f x", want: notInt},
		{say: "SETNX f 5", want: ":0"},
		{say: "SETEX f 100 5", want: ok, gone: true},
		{say: "SETEX f 0 5", want: "-ERR invalid expire time in 'setex' command"},
		{say: "PSETEX f 100000 5", want: ok, gone: true},
		{say: "PSETEX f 100000 x", want: notInt},
		{say: "MSET k 1 f 2", want: ok, gone: true},
		{say: "MSET f 1 k x", want: notInt},
		{say: "MSETNX k 1 f 2", want: ":0"},
		{say: "GETDEL f", want: wrongType},
		{say: "GETEX f", want: wrongType},
		{say: "GETEX f EX 100", want: wrongType},
		{say: "GETEX f PXAT 1", want: wrongType},
		{say: "GETEX f EX 0", want: wrongType},
		{say: "GETEX f PERSIST", want: wrongType},
		{say: "INCR f", want: wrongType},
		{say: "DECR f", want: wrongType},
		{say: "INCRBY f 5", want: wrongType},
		{say: "DECRBY f 5", want: wrongType},
		{say: "INCREX f", want: wrongType},
		{say: "INCREX f BYINT 5 UBOUND 3", want: wrongType},
		{say: "INCREX f BYINT 5 UBOUND 3 SATURATE PXAT 1", want: wrongType},
		{say: "INCREX f IDMP p i", want: wrongType},
		{say: "CINCRBY f id 5", want: wrongType},
		{say: "CDECRBY f id 5 WITHSTATUS", want: wrongType},
		{say: "CINCR f id", want: wrongType},
		{say: "CDECR f id", want: wrongType},
		{say: "CMINCRBY id 2 k 1 f 2", want: wrongType},
		{say: "STRLEN f", want: wrongType},
		{say: "GETRANGE f 0 -1", want: wrongType},
	} {
		for _, multi := range []bool{false, true} {
			c.send("DEL f k")
			c.play([]step{{"FBF.ADD f item", ":1"}})
			if multi {
				c.play([]step{{"MULTI", ok}, {tt.say, "+QUEUED"}, {"EXEC", "[" + tt.want + "]"}})
			} else {
				c.play([]step{{tt.say, tt.want}})
			}
			if tt.gone {
				c.play([]step{{"TYPE f", "+string"}})
			} else {
				c.play([]step{{"TYPE f", "+fbf"}, {"FBF.ADD f item", ":0"}, {"TTL f", ":-1"},
					{"EXISTS k", ":0"}})
			}
		}
	}
}
