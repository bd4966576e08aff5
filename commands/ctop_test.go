package commands

import "testing"

// TestTop: CTOP answers as ZRANGE … WITHSCORES does, with values as GET shows them, to a user who
// may read them all.
func TestTop(t *testing.T) {
	c := dial(t, newStore(t), new(Server))
	const wrong = "-ERR invalid option: TOP must be NONE or 1 to 10000"
	denied := "-" + string(errKeyDenied.(refusal))
	c.play([]step{
		{"CTABLE CREATE eur PREFIX e: SCALE 2 TOP 2", "+OK"},
		{"CTOP e: 2", "[]"},
		{"MSET e:a 1.5 e:b -3 e:c 0.05 e:d 0.05", "+OK"},
		{"CTOP e: 2", `["e:a" "1.5" "e:c" "0.05"]`},
		{"CTOP e: 3", "-ERR invalid option: n must be 1 to 2, the table's TOP"},
		{"CTOP e: 99999999999", "-ERR invalid option: n must be 1 to 2, the table's TOP"},
		{"CTOP e: 0", "-ERR invalid option: n must be 1 to 2, the table's TOP"},
		{"CTOP e: x", "-ERR value is not an integer or out of range"},
		{"CTOP e:a 1", "-ERR no table with TOP has exactly this prefix: CTABLE CREATE one, or CTABLE ALTER it"},
		{"CTABLE ALTER eur TOP 10001", wrong},
		{"CTABLE ALTER eur TOP -1", wrong},
		{"CTABLE ALTER eur TOP x", wrong},
		{"CTABLE ALTER eur TOP 3", "+OK"},
		{"CTOP e: 3", `["e:a" "1.5" "e:c" "0.05" "e:d" "0.05"]`},
		{"ACL SETUSER some on nopass +@all %R~e: %R~e:a", "+OK"},
		{"ACL SETUSER other on nopass +@all %R~e:?", "+OK"},
		{"AUTH some x", "+OK"},
	})
	c.say("HELLO 3")
	c.play([]step{
		{"CTOP e: 1", `[["e:a" "1.5"]]`},
		{"CTOP e: 2", denied},
		{"AUTH other x", "+OK"},
		{"CTOP e: 1", denied},
		{"CTABLE ALTER eur TOP NONE", "+OK"},
		{"CTOP e: 1", "-ERR no table with TOP has exactly this prefix: CTABLE CREATE one, or CTABLE ALTER it"},
	})
}
