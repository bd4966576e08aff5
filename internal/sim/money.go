package sim

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Of accounts, drains and throttles.
const (
	purses = 3 // each is accounts of one slot, among which money moves
	funds  = 20
	tanks  = 3 // counters that are emptied
	rates  = 2
	// rateLimit is how many permits there are at once; one more each ratePer.
	rateLimit = 3
	ratePer   = 10 * time.Second
)

// ledger is what clients know of money, stock and limits. It is checked as it grows:
//
//   - a deal that was answered is applied once, and answered the same when it is sent again;
//   - what a purse has is constant, and no account is below 0; so are all tills together;
//   - a stock with its open holds stays in its bounds; a hold ends once, and each later answer says how;
//   - no hold ends by itself before its time, or is settled or cancelled behind it;
//   - a throttle lets in what its burst and the time allow, at most.
//
// At the end each counter must be what the deals that were not refused add up to.
type ledger struct {
	mu    sync.Mutex
	deals []*deal
	holds []*held
	moves []*move
	// tillHolds are opened by moves, and nothing else ends them.
	tillHolds []*held
	sums      map[string]int64 // by counter: what was added; by throttle: what was let in
	began     time.Time        // the first throttle
}

// deal is an operation that is refused, which changes nothing, or else done once, and answered once
// and for all. It is a request, and a part of a transaction.
type deal struct {
	outcome
	key     string
	command []string
	adds    map[string]int64 // by counter
	silent  bool             // the answer does not tell whether it was applied
	first   string           // answer
	// took takes in the first answer, with the ledger's lock; nil: nothing does.
	took func(l *Workload, reply any)
}

func (d *deal) String() string { return strings.Join(d.command, " ") }

func (d *deal) words() []string { return d.command }

// refuses reports whether a reply says that a deal is not done, for a reason that clients know.
func (d *deal) refuses(reply any) bool {
	text := fmt.Sprint(reply)
	return d.command[0] == "CL.THROTTLE" && strings.HasPrefix(text, "[1 ") ||
		strings.HasPrefix(text, "BOUND ") || isNoCents(text) || strings.Contains(text, "the hold would have ended already")
}

// sending implements part.
func (d *deal) sending(l *Workload) func(reply any, from string) bool {
	b := &l.ledger
	b.mu.Lock()
	defer b.mu.Unlock()
	if d.sends++; b.sums == nil {
		b.sums = make(map[string]int64)
	}
	known := d.first
	return func(reply any, from string) (applied bool) {
		b.mu.Lock()
		defer b.mu.Unlock()
		if d.refuses(reply) {
			if known != "" {
				l.World.Fail("%v was answered %s, and now %v by %s", d, known, reply, from)
			}
			return false
		}
		if !d.silent {
			reply, applied = l.status(d, reply, from)
			d.take(l.World, d, applied, from)
		}
		if text := fmt.Sprint(reply); d.first != "" && d.first != text {
			l.World.Fail("%v was answered %s, and now %s by %s", d, d.first, text, from)
		} else if d.first == text {
			return applied
		}
		d.first = fmt.Sprint(reply)
		for key, n := range d.adds {
			b.sums[key] += n
		}
		if d.took != nil {
			d.took(l, reply)
		}
		return applied
	}
}

// status returns the two parts of a reply: an answer, and whether the operation was applied now.
func (l *Workload) status(what fmt.Stringer, reply any, from string) (answer any, applied bool) {
	pair, _ := reply.([]any)
	if len(pair) != 2 {
		l.World.Fail("%v is answered %v by %s", what, reply, from)
		return nil, false
	}
	return pair[0], pair[1] == int64(1)
}

// send implements request.
func (d *deal) send(l *Workload, s Sender, patience time.Duration) bool {
	answered := d.sending(l)
	replies, from, _ := s.Send(d.key, patience, d.command)
	if len(replies) == 0 || !d.refuses(replies[0]) && !l.settled(d.command, replies[0], from) {
		return false
	}
	answered(replies[0], from)
	return true
}

// deal makes a deal, or sends an earlier one again: anybody's, whatever became of it.
func (u *user) deal(d *deal) {
	b := &u.ledger
	b.mu.Lock()
	n := len(b.deals)
	if n > 0 && u.rng.IntN(4) == 0 {
		d = b.deals[n-1-u.rng.IntN(min(n, 100))]
		b.mu.Unlock()
		d.send(u.Workload, u, u.patience())
		return
	}
	b.deals = append(b.deals, d)
	b.mu.Unlock()
	u.request(d)
}

// increment returns an increment of a counter.
func (u *user) increment(key string, n int64, options ...string) *deal {
	return &deal{key: key, adds: map[string]int64{key: n}, command: append([]string{"CINCRBY", key, u.id(),
		strconv.FormatInt(n, 10), "WITHSTATUS"}, options...)}
}

// newTransfer returns a transfer from one counter to another.
func (u *user) newTransfer(from, to string, options ...string) *deal {
	n := int64(1 + u.rng.IntN(funds))
	return &deal{key: from, adds: map[string]int64{from: -n, to: n}, command: append([]string{"CMINCRBY", u.id(),
		"2", from, strconv.FormatInt(-n, 10), to, strconv.FormatInt(n, 10), "WITHSTATUS"}, options...)}
}

// transfer moves money from one account of a purse to another, or counts what is there.
func (u *user) transfer() {
	fill, count := []string{"MSETNX"}, []string{"MGET"}
	purse := u.rng.IntN(purses)
	for i := range u.Accounts {
		name := fmt.Sprintf("{purse%d}%d", purse, i)
		fill, count = append(fill, name, strconv.Itoa(funds)), append(count, name)
	}
	if !u.make(fill...) {
		return
	}
	if u.rng.IntN(u.Accounts) > 0 {
		from, to := u.two(u.Accounts)
		u.deal(u.newTransfer(count[1+from], count[1+to], "LBOUND", "0"))
	} else if reply, from, ok := u.Do(u, count[1], time.Second, count...); ok {
		sum, list := int64(0), reply.([]any)
		for _, v := range list {
			n, err := strconv.ParseInt(fmt.Sprint(v), 10, 64)
			if sum += n; err != nil || n < 0 {
				u.World.Fail("%q is answered %v by %s", count, list, from)
			}
		}
		if want := int64(u.Accounts * funds); sum != want {
			u.World.Fail("%q is answered %v by %s, which is not %d together", count, list, from, want)
		}
	}
}

// two draws two different numbers below n.
func (u *user) two(n int) (a, b int) {
	a = u.rng.IntN(n)
	return a, (a + 1 + u.rng.IntN(n-1)) % n
}

// drain adds to a counter, or empties it.
func (u *user) drain() {
	key := fmt.Sprint("tank", u.rng.IntN(tanks))
	if u.rng.IntN(3) > 0 {
		u.deal(u.increment(key, int64(1+u.rng.IntN(9))))
		return
	}
	u.deal(&deal{key: key, command: []string{"CGETDEL", key, u.id()}, silent: true,
		took: func(l *Workload, reply any) {
			n, _ := strconv.ParseInt(fmt.Sprint(reply), 10, 64) // nil: nothing was there
			l.ledger.sums[key] -= n
		}})
}

// throttle asks for permits.
func (u *user) throttle() {
	b, key, n := &u.ledger, fmt.Sprint("rate", u.rng.IntN(rates)), int64(1+u.rng.IntN(2))
	b.mu.Lock()
	if b.began.IsZero() {
		b.began = time.Now()
	}
	b.mu.Unlock()
	u.deal(&deal{key: key, silent: true, adds: map[string]int64{key: n}, command: []string{"CL.THROTTLE", key,
		strconv.Itoa(rateLimit - 1), "1", strconv.Itoa(int(ratePer.Seconds())), strconv.FormatInt(n, 10), "OPID",
		u.id()}, took: func(l *Workload, _ any) {
		least, most := l.World.aheadEver()
		past := time.Since(b.began) + most - least
		if let := b.sums[key]; let > rateLimit+1+int64(past/ratePer) {
			l.World.Fail("%s has let in %d in %v", key, let, past)
		}
	}})
}

// facts returns what is read of counters and holds once every deal has been answered.
func (b *ledger) facts() (all []Fact) {
	for _, key := range slices.Sorted(maps.Keys(b.sums)) {
		n, held := b.sums[key], b.heldOf(key)
		switch {
		case strings.HasPrefix(key, "rate"):
			continue
		case strings.HasPrefix(key, "cent"):
			all = append(all, Fact{[]string{"CGET", key}, thousandths(n)})
			continue
		case strings.HasPrefix(key, "{purse"):
			n += funds
		case strings.HasPrefix(key, till):
			all = append(all, Fact{[]string{"CHELD", key}, fmt.Sprintf("[%d %s]", n+funds, held)})
			continue
		case held != "":
			all = append(all, Fact{[]string{"CHELD", key}, fmt.Sprintf("[%d %s]", n, held)})
			continue
		}
		value := fmt.Sprint(n)
		if n == 0 && strings.HasPrefix(key, "tank") {
			value = "<nil>"
		}
		all = append(all, Fact{[]string{"CGET", key}, value})
	}
	return all
}
