package sim

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Sender sends commands to the servers of a scenario, wherever they are. It is used by one goroutine.
type Sender interface {
	// Send sends commands about the keys of one slot, of which key is one, in one write. It returns
	// the replies that came, in the order of the commands, and the address of the server. A reply
	// that is a replyError is the server's. After an error nobody knows which of the commands
	// without a reply were carried out.
	Send(key string, patience time.Duration, commands ...[]string) (replies []any, from string, err error)
}

// Workload is what the clients of a scenario do, whatever its servers are: they increment and read
// counters, and send again what was not answered. Its methods are safe for concurrent use.
type Workload struct {
	World   *World
	History *History
	Keys    int           // how many counters there are
	Connect func() Sender // returns a client's connections
	// another code of errors by which servers may refuse a command for a while; "": none
	Refusal string
	// Suffix is behind the name of each counter of an EXACT table, so that no other workload has it.
	Suffix string
	// Accounts are how many a purse has, how many are in slots of their own, and how many stocks there are.
	Accounts int
	// Deals is the least number of operations of money, stock and limits. Unless it is 0 clients do the named
	// activities much more often than they count.
	Deals int
	// Leaps: the clock of the region to which commands are sent may leap, and what is set there expires then.
	Leaps bool

	activities []activity
	ended      atomic.Bool // clients send nothing new
	mu         sync.Mutex
	requests   []request // that are sent once more at the end
	sketches   sketchBook
	ledger     ledger
	allOwned   []*owned
}

// user is one client.
type user struct {
	*Workload
	Sender
	number int
	sent   int
	rng    *rand.Rand

	twinsTo []Sender
	made    map[string]bool // keys
	owned   [ownedCounters]*owned
	lately  []briefOp
}

// Run lets a client of a number that no other one has work until the workload ends.
func (l *Workload) Run(number int) {
	u := &user{Workload: l, Sender: l.Connect(), number: number, rng: l.World.Rand()}
	sum := 0
	for _, a := range l.activities {
		sum += a.weight
	}
	for !u.over() {
		u.read()
		at := u.rng.IntN(sum)
		for _, a := range l.activities {
			if at -= a.weight; at < 0 {
				a.do(u)
				break
			}
		}
		u.rest()
	}
}

// activity is one kind of work that clients do.
type activity struct {
	name   string
	weight int // how often it is done, against the others
	do     func(u *user)
}

// activities are all that there are. The first one belongs to every workload.
var activities = []activity{
	{"count", 6, (*user).count},
	{"together", 2, (*user).together},
	{"twins", 1, (*user).twins},
	{"filters", 2, (*user).addToFilter},
	{"sketches", 2, (*user).countInSketch},
	{"approx", 1, (*user).approximately},
	{"window", 2, (*user).briefly},
	{"tables", 1, (*user).changeTables},
	{"expire", 1, (*user).expire},
	{"mixed", 2, (*user).mix},
	{"plain", 1, (*user).addPlainly},
	{"own", 2, (*user).own},
	{"transfer", 2, (*user).transfer},
	{"across", 2, (*user).across},
	{"hold", 3, (*user).hold},
	{"drain", 1, (*user).drain},
	{"throttle", 1, (*user).throttle},
	{"cents", 2, (*user).cents},
}

// Choose says what clients do: what is named, separated by commas. Empty: each with probability p,
// drawn from rng, but for some.
func (l *Workload) Choose(names string, p float64, but string, rng *rand.Rand) {
	for i, a := range activities {
		if strings.Contains(","+but+",", ","+a.name+",") {
			continue
		}
		if i == 0 || strings.Contains(","+names+",", ","+a.name+",") || names == "" && rng.Float64() < p {
			if i > 0 && l.Deals > 0 {
				a.weight *= 50
			}
			l.activities = append(l.activities, a)
		}
	}
}

// Names returns the names of the clients' activities.
func (l *Workload) Names() string {
	var names []string
	for _, a := range l.activities {
		names = append(names, a.name)
	}
	return strings.Join(names, ",")
}

// End lets the clients send nothing new.
func (l *Workload) End() { l.ended.Store(true) }

// anew returns a workload that does the same with servers that have forgotten everything.
func (l *Workload) anew() *Workload {
	return &Workload{World: l.World, History: NewHistory(l.World), Keys: l.Keys, Connect: l.Connect,
		Refusal: l.Refusal, Suffix: l.Suffix, Accounts: l.Accounts, Deals: l.Deals, Leaps: l.Leaps,
		activities: l.activities}
}

func (l *Workload) over() bool { return l.ended.Load() || l.World.Failure() != "" }

// key returns the name of a counter.
func (l *Workload) key(i int) string { return fmt.Sprint("k", i%l.Keys, l.Suffix) }

// Do sends one command, and reports whether it was answered.
func (l *Workload) Do(s Sender, key string, patience time.Duration, words ...string) (reply any, from string,
	ok bool) {
	replies, from, _ := s.Send(key, patience, words)
	if len(replies) == 0 || !l.settled(words, replies[0], from) {
		return nil, from, false
	}
	return replies[0], from, true
}

// settled reports whether a reply is an answer. It fails the world if the reply is an error that no
// fault explains.
func (l *Workload) settled(words []string, reply any, from string) bool {
	var refused replyError
	if err, is := reply.(error); !is || !errors.As(err, &refused) {
		return true
	}
	code, _, _ := strings.Cut(string(refused), " ")
	switch code {
	case "MOVED", "TRYAGAIN", "CLUSTERDOWN", "LOADING", "MISCONF", "EXECABORT", "NORIGHTS", "BOUND", l.Refusal:
		return false
	case "UNKNOWN": // it has no opid
		if slices.Contains([]string{"BF.MADD", "BF.RESERVE", "CMS.INITBYDIM", "CMS.MERGE", "DEL", "PEXPIRE",
			"PERSIST", "SET", "MSETNX", "GETDEL", "PEXPIREAT", "INCRBY"}, words[0]) {
			return false
		}
	}
	if !strings.Contains(string(refused), "outcome unknown") {
		l.World.Fail("%q is answered %q by %s", words, string(refused), from)
	}
	return false
}

// request is what is sent again until it is answered, and once more at the end. An Op is one.
type request interface {
	fmt.Stringer
	// send sends it once, and reports whether it was answered.
	send(l *Workload, s Sender, patience time.Duration) bool
}

// command returns the command of an operation.
func (o *Op) command() []string {
	return append([]string{"CINCRBY", o.Key, o.ID, "1", "WITHSTATUS"}, o.options...)
}

// String returns the key and the opid.
func (o *Op) String() string { return o.Key + " " + o.ID }

// send implements request.
func (o *Op) send(l *Workload, s Sender, patience time.Duration) bool {
	l.History.Sent(o)
	reply, from, ok := l.Do(s, o.Key, patience, o.command()...)
	if ok {
		l.answer(o, reply, from)
	}
	return ok
}

// Count returns a new operation on the i-th counter. The function that it returns sends it once,
// and reports whether it was answered.
func (l *Workload) Count(i int, id string) (o *Op, send func(s Sender, patience time.Duration) bool) {
	o = l.History.Send(l.key(i), id)
	l.keep(o)
	return o, func(s Sender, patience time.Duration) bool { return o.send(l, s, patience) }
}

// keep notes a request, which is sent once more at the end.
func (l *Workload) keep(r request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.requests = append(l.requests, r)
}

// answer takes in the answer to an operation: a value, and whether it was applied, which it returns.
func (l *Workload) answer(o *Op, reply any, from string) (applied bool) {
	pair, _ := reply.([]any)
	if len(pair) != 2 {
		l.World.Fail("%q is answered %v by %s", o.command(), reply, from)
		return false
	}
	value, _ := pair[0].(int64)
	applied = pair[1] == int64(1)
	l.History.Answer(o, value, applied, from)
	return applied
}

// requestsAtEnd is how many one client sends again at the end.
const requestsAtEnd = 1000

// Again sends every request again, until it is answered. It fails the world if that takes too long.
func (l *Workload) Again() {
	s := l.Connect()
	var all sync.WaitGroup
	for some := range slices.Chunk(l.requests, max(requestsAtEnd, len(l.requests)/16)) {
		all.Go(func() {
			s := l.Connect()
			for _, r := range some {
				l.mustEnd(r.String(), func() bool { return r.send(l, s, time.Second) })
			}
		})
	}
	all.Wait()
	l.keepFleeting(s)
	if l.World.Failure() == "" {
		l.History.Complete()
		l.sketches.finish(l, s)
		l.ledger.finish(l, s)
	}
}

// leave lets another region have what is left of a region's workload: counters of EXACT tables.
func (l *Workload) leave(to func() Sender) {
	l.Connect, l.sketches, l.requests = to, sketchBook{}, slices.DeleteFunc(l.requests, func(r request) bool {
		return !l.exchanged(r)
	})
	// of mixed transactions
	l.History.forget(func(key string) bool {
		return !strings.HasSuffix(key, l.Suffix) || strings.HasPrefix(key, "{cms")
	})
}

// exchanged reports whether other regions hear of a request.
func (l *Workload) exchanged(r request) bool {
	switch r := r.(type) {
	case *Op:
		return strings.HasSuffix(r.Key, l.Suffix)
	case *group, *ownedOp:
		return true
	}
	return false
}

// elsewhere sends every request that other regions hear of again, to another one. The answers must
// be the first ones.
func (l *Workload) elsewhere(s Sender) {
	for _, r := range l.requests {
		if l.exchanged(r) {
			l.mustEnd(r.String(), func() bool { return r.send(l, s, time.Second) })
		}
	}
}

// Fact is a query, and how its answer prints once every request has been answered.
type Fact struct {
	Query  []string
	Answer string
}

// Facts returns what any server must answer once every request has been answered.
func (l *Workload) Facts() []Fact {
	s := l.Connect()
	all := slices.Concat(l.History.facts(), l.sketches.facts(), l.ownedFacts(), l.ledger.facts())
	for i := range all {
		f := &all[i]
		if f.Answer != "" {
			continue
		}
		// nobody knows the answer: whoever is in charge has the right one
		l.mustEnd(strings.Join(f.Query, " "), func() bool {
			reply, _, ok := l.Do(s, f.Query[1], time.Second, f.Query...)
			f.Answer = fmt.Sprint(reply)
			return ok
		})
	}
	return all
}

// mustEnd does something again until it is done, and fails the world if that takes too long.
func (l *Workload) mustEnd(what string, do func() bool) {
	for end := time.Now().Add(3 * time.Minute); l.World.Failure() == "" &&
		!do(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			l.World.Fail("stuck: %s is not answered although all is well", what)
		}
	}
}

// id returns an opid that no other operation has.
func (u *user) id() string {
	u.sent++
	return fmt.Sprint(u.number, "-", u.sent)
}

// patience returns how long the client waits for an answer.
func (u *user) patience() time.Duration {
	if u.rng.IntN(4) == 0 {
		return time.Duration(u.rng.IntN(300)) * time.Millisecond
	}
	return 3 * time.Second
}

// rest waits for a moment.
func (u *user) rest() { time.Sleep(time.Duration(u.rng.IntN(20_000)) * time.Microsecond) }

// request sends a request until it is answered or the workload ends.
func (u *user) request(r request) {
	u.keep(r)
	for !u.over() && !r.send(u.Workload, u, u.patience()) {
		u.rest()
	}
}

// read reads a counter, now and then.
func (u *user) read() {
	if u.rng.IntN(3) != 0 {
		return
	}
	key := u.key(u.rng.IntN(u.Keys))
	answer := u.History.Read(key)
	if reply, from, ok := u.Do(u, key, time.Second, "CGET", key); ok {
		value, _ := reply.(int64)
		answer(value, from)
	}
}

// count increments a counter.
func (u *user) count() { u.request(u.History.Send(u.key(u.rng.IntN(u.Keys)), u.id())) }
