package sim

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// till begins the names of accounts that are in slots of their own.
const till = "till"

// move carries an amount from one account to another, in another slot: both sides hold it, then the payer's
// hold is settled, which decides, and the other one after it. It is a request. A client that dies between two
// steps leaves it to others, which begin with the first step, also while another one is at it.
type move struct {
	out, in *held
	late    *deal // counts it if in had ended before the payer's hold was settled
	over    bool
}

func (m *move) String() string { return fmt.Sprintf("%v; %v", m.out, m.in) }

// across moves an amount, or takes over where another client may have died.
func (u *user) across() {
	b := &u.ledger
	b.mu.Lock()
	if n := len(b.moves); n > 0 && u.rng.IntN(4) == 0 {
		m := b.moves[n-1-u.rng.IntN(min(n, 100))]
		b.mu.Unlock()
		m.walk(u.Workload, u, u.patience(), u.rng.IntN(6))
		return
	}
	b.mu.Unlock()
	a, z := u.two(u.Accounts)
	from, to := fmt.Sprint(till, a), fmt.Sprint(till, z)
	if !u.make("MSETNX", from, strconv.Itoa(funds)) || !u.make("MSETNX", to, strconv.Itoa(funds)) {
		return
	}
	n := int64(1 + u.rng.IntN(funds))
	life := time.Duration(u.rng.Int64N(int64(holdFor)))
	_, most := u.World.aheadEver()
	m := &move{out: u.newHold(from, -n, life+most, "LBOUND", "0"), late: u.increment(to, n)}
	if u.rng.IntN(4) > 0 { // else it may end too early
		life += time.Hour
	}
	m.in = u.newHold(to, n, life+most)
	b.mu.Lock()
	b.moves = append(b.moves, m)
	b.mu.Unlock()
	u.keep(m)
	for steps := u.rng.IntN(12); !u.over() && steps > 0; steps /= 2 {
		if m.walk(u.Workload, u, u.patience(), steps) {
			break
		}
		u.rest()
	}
}

// send implements request.
func (m *move) send(l *Workload, s Sender, patience time.Duration) bool {
	return m.walk(l, s, patience, 9)
}

// walk does one step after the other, as many as the client lives for. It reports whether all is done.
func (m *move) walk(l *Workload, s Sender, patience time.Duration, life int) bool {
	did := func(r request) bool {
		life--
		return life >= 0 && r.send(l, s, patience)
	}
	state := func(h *held) (opened, settled bool) {
		l.ledger.mu.Lock()
		defer l.ledger.mu.Unlock()
		return h.first != "", strings.Contains(h.end, "settled")
	}
	if !did(&m.out.deal) {
		return false
	}
	if opened, _ := state(m.out); !opened {
		return true // too little is there
	}
	if !did(&m.in.deal) {
		return false
	}
	how := strconv.FormatInt(m.out.amount, 10)
	if opened, _ := state(m.in); !opened {
		how = ""
	}
	if !did(m.out.newEnding(how)) {
		return false
	}
	if _, moved := state(m.out); !moved {
		opened, _ := state(m.in)
		return !opened || did(m.in.newEnding(""))
	}
	if !did(m.in.newEnding(strconv.FormatInt(m.in.amount, 10))) {
		return false
	}
	_, came := state(m.in)
	if !came && !did(m.late) {
		return false
	}
	l.ledger.mu.Lock()
	defer l.ledger.mu.Unlock()
	m.over = true
	return true
}

// finishMoves fails the world unless each amount that left an account has come to another one.
func (b *ledger) finishMoves(w *World) {
	var sum, below int64
	for key, n := range b.sums {
		if strings.HasPrefix(key, till) {
			sum, below = sum+n, min(below, n+funds)
		}
	}
	if sum != 0 || below < 0 {
		w.Fail("the tills have %d more together than at first, and one has %d", sum, below)
	}
	for _, m := range b.moves {
		_, left := strings.CutPrefix(m.out.end, "ENDED hold was settled")
		if left != m.over {
			w.Fail("%v: the payer's hold: %q, the other one: %q", m, m.out.end, m.in.end)
		}
		for _, d := range []*deal{&m.out.deal, &m.in.deal, m.late} {
			d.complete(w, d)
		}
	}
}

// counts returns how many deals and moves there have been, and how many holds were opened.
func (b *ledger) counts() (deals, holds int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.deals) + len(b.moves), len(b.holds) + len(b.tillHolds)
}
