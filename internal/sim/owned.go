package sim

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// ownedCounters is how many counters each client has for itself.
const ownedCounters = 2

// owned is a counter that only one client uses. So the client knows what it is, whatever it does to it.
type owned struct {
	key     string
	value   int64
	there   bool
	expires int64 // unix ms, far in the future; 0: never
	doubted bool  // a change without an opid was not answered, so nobody knows
}

// ownedOp is an increment of such a counter. It is a request.
type ownedOp struct {
	outcome
	key, id, delta, want string
}

func (o *ownedOp) String() string { return o.key + " " + o.id }

// send implements request.
func (o *ownedOp) send(l *Workload, s Sender, patience time.Duration) bool {
	reply, from, ok := l.Do(s, o.key, patience, "CINCRBY", o.key, o.id, o.delta, "WITHSTATUS")
	if pair, _ := reply.([]any); ok {
		if len(pair) != 2 || fmt.Sprint(pair[0]) != o.want {
			l.World.Fail("%v of %s is answered %v by %s, and must be %s", o, o.delta, reply, from, o.want)
			return true
		}
		o.take(l.World, o, pair[1] == int64(1), from)
	}
	return ok
}

// own changes a counter of the client's own, or reads it.
func (u *user) own() {
	at := &u.owned[u.rng.IntN(ownedCounters)]
	if *at == nil || (*at).doubted {
		*at = &owned{key: fmt.Sprintf("own-%d-%s%s", u.number, u.id(), u.Suffix)}
		u.mu.Lock()
		u.allOwned = append(u.allOwned, *at)
		u.mu.Unlock()
	}
	o, n := *at, int64(1+u.rng.IntN(50))
	text, there, expires, is := strconv.FormatInt(n, 10), "0", "0", o.shown()
	if o.there {
		there = "1"
	}
	if o.expires != 0 {
		expires = "1"
	}
	switch u.rng.IntN(12) {
	case 0:
		if u.change(o, "OK", "SET", o.key, text) {
			o.value, o.there, o.expires = n, true, 0
		}
	case 1:
		if u.change(o, is, "GETDEL", o.key) {
			o.value, o.there, o.expires = 0, false, 0
		}
	case 2:
		if u.change(o, there, "DEL", o.key) {
			o.value, o.there, o.expires = 0, false, 0
		}
	case 3:
		if u.Leaps {
			return
		}
		far := time.Now().Add(6*time.Hour + time.Duration(n)*time.Second).UnixMilli()
		if u.change(o, there, "PEXPIREAT", o.key, strconv.FormatInt(far, 10)) && o.there {
			o.expires = far
		}
	case 4:
		if u.change(o, expires, "PERSIST", o.key) {
			o.expires = 0
		}
	case 5:
		if u.change(o, strconv.FormatInt(o.value+n, 10), "INCRBY", o.key, text) {
			o.value, o.there = o.value+n, true
		}
	case 6:
		if reply, from, ok := u.Do(u, o.key, time.Second, "CGET", o.key); ok && fmt.Sprint(reply) != is {
			u.World.Fail("%s is read as %v at %s, and is %s", o.key, reply, from, is)
		}
	default:
		o.value, o.there = o.value+n, true
		u.request(&ownedOp{key: o.key, id: u.id(), delta: text, want: o.shown()})
	}
}

// shown returns what CGET must print.
func (o *owned) shown() string {
	if !o.there {
		return "<nil>"
	}
	return strconv.FormatInt(o.value, 10)
}

// change sends a command once, and reports whether it was carried out. If nobody knows, the counter
// is given up.
func (u *user) change(o *owned, want string, words ...string) bool {
	replies, from, _ := u.Send(o.key, u.patience(), words)
	switch {
	case len(replies) == 0:
	case notDone(replies[0]):
		return false
	case u.settled(words, replies[0], from):
		if got := fmt.Sprint(replies[0]); got != want {
			u.World.Fail("%q is answered %s by %s, and must be %s", words, got, from, want)
		}
		return true
	}
	o.doubted = true
	return false
}

// notDone reports whether a reply says that the command was certainly not carried out.
func notDone(reply any) bool {
	err, _ := reply.(replyError)
	code, _, _ := strings.Cut(string(err), " ")
	return code == "MOVED" || code == "TRYAGAIN" || code == "READONLY"
}

// ownedFacts returns what is read of counters of one client each.
func (l *Workload) ownedFacts() (all []Fact) {
	for _, o := range l.allOwned {
		value, expires := Fact{Query: []string{"CGET", o.key}}, Fact{Query: []string{"PEXPIRETIME", o.key}}
		if !o.doubted {
			value.Answer, expires.Answer = o.shown(), strconv.FormatInt(o.expires, 10)
			if !o.there {
				expires.Answer = "-2"
			} else if o.expires == 0 {
				expires.Answer = "-1"
			}
		}
		all = append(all, value, expires)
	}
	return all
}
