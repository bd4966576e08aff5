package sim

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Of holds.
const (
	stockLimit = "15"
	vault      = "{stock1" // begins the names of stocks whose table has the bounds
	holdFor    = 6 * time.Second
	// openAtEnd is how long holds last that may be open when a world ends.
	openAtEnd = 5 * time.Hour
)

// held is a hold.
type held struct {
	deal
	id              string
	amount, expires int64 // unix ms
	end             string
	ended           outcome
	settled         string // first answer
}

// newHold returns a hold of an amount.
func (u *user) newHold(key string, n int64, life time.Duration, options ...string) *held {
	h := &held{id: u.id(), amount: n, expires: time.Now().Add(life).UnixMilli()}
	h.deal = deal{key: key, adds: map[string]int64{key: 0}, command: append([]string{"CHOLD", key, h.id,
		strconv.FormatInt(n, 10), "PXAT", strconv.FormatInt(h.expires, 10), "WITHSTATUS"}, options...),
		took: func(l *Workload, _ any) {
			if b := &l.ledger; strings.HasPrefix(key, till) {
				b.tillHolds = append(b.tillHolds, h)
			} else {
				b.holds = append(b.holds, h)
			}
		}}
	return h
}

// amount returns a number other than 0.
func (u *user) amount() int64 { return []int64{1, 2, 3, 4, 5, -1, -2}[u.rng.IntN(7)] }

// hold sets something of a stock aside, ends a hold, changes the stock, or looks at it.
func (u *user) hold() {
	key, options := fmt.Sprintf("{stock%d}", u.rng.IntN(u.Accounts)), []string{"LBOUND", "0", "UBOUND", stockLimit}
	if strings.HasPrefix(key, vault) {
		options = nil
	}
	switch u.rng.IntN(10) {
	case 0:
		reply, from, ok := u.Do(u, key, time.Second, "CHELD", key)
		var value, up, down, n, limit int64
		_, _ = fmt.Sscan(stockLimit+strings.Trim(fmt.Sprint(" ", reply), "[]"), &limit, &value, &up, &down, &n)
		if ok && (up < 0 || down > 0 || value+down < 0 || value+up > limit) {
			u.World.Fail("%s has %v, says %s: beyond its bounds", key, reply, from)
		}
	case 1:
		u.deal(u.increment(key, u.amount(), options...))
	case 2, 3, 4:
		life := time.Duration(u.rng.Int64N(int64(holdFor)))
		switch u.rng.IntN(6) {
		case 0:
			life += openAtEnd
		case 1, 2: // else it would have ended already for a leader with that clock
			_, most := u.World.aheadEver()
			life += most
		}
		u.deal(&u.newHold(key, u.amount(), life, options...).deal)
	default:
		u.endOne()
	}
}

// endOne settles or cancels a hold, which may have ended.
func (u *user) endOne() {
	b := &u.ledger
	b.mu.Lock()
	n := len(b.holds)
	if n == 0 {
		b.mu.Unlock()
		return
	}
	h, amount := b.holds[n-1-u.rng.IntN(min(n, 20))], ""
	b.mu.Unlock()
	if part := min(u.rng.Int64N(6), max(h.amount, -h.amount)); u.rng.IntN(2) == 0 {
		if h.amount < 0 {
			part = -part
		}
		amount = strconv.FormatInt(part, 10)
	}
	u.request(h.newEnding(amount))
}

// ending settles or cancels a hold. It is a request.
type ending struct {
	deal
	h *held
}

// newEnding returns the settling of a hold with an amount; "": its cancelling.
func (h *held) newEnding(amount string) *ending {
	if amount == "" {
		return &ending{deal{command: []string{"CCANCEL", h.key, h.id, "WITHSTATUS"}}, h}
	}
	return &ending{deal{command: []string{"CSETTLE", h.key, h.id, amount, "WITHSTATUS"}}, h}
}

// send implements request.
func (e *ending) send(l *Workload, s Sender, patience time.Duration) bool {
	sent, h, w := time.Now(), e.h, l.World
	replies, from, _ := s.Send(h.key, patience, e.command)
	if len(replies) == 0 {
		return false
	}
	how := fmt.Sprint(replies[0])
	expired, ended := strings.HasPrefix(how, "EXPIRED "), strings.HasPrefix(how, "ENDED ")
	if !expired && !ended && !l.settled(e.command, replies[0], from) {
		return false
	}
	l.ledger.mu.Lock()
	defer l.ledger.mu.Unlock()
	least, most := w.aheadEver()
	switch {
	case expired && (time.Now().Add(most).UnixMilli() < h.expires ||
		!strings.HasPrefix(how, fmt.Sprintf("EXPIRED hold ended at %d,", h.expires))):
		w.Fail("%v: %s, says %s, at another time", h, how, from)
	case !expired && !ended:
		answer, applied := l.status(e, replies[0], from)
		h.ended.take(w, h, applied, from)
		if applied && sent.Add(least).UnixMilli() > h.expires+1 {
			w.Fail("%v is done by %s, behind the time of %v", e, from, h)
		}
		if how = "ENDED hold was cancelled"; e.command[0] == "CSETTLE" {
			how = "ENDED hold was settled with " + e.command[3]
			if value := fmt.Sprint(answer); h.settled == "" || h.settled == value {
				h.settled = value
			} else {
				w.Fail("%v was answered %s, and now %s by %s", e, h.settled, value, from)
			}
		}
	}
	switch {
	case h.end == "":
		n, _ := strconv.ParseInt(strings.TrimPrefix(how, "ENDED hold was settled with "), 10, 64)
		l.ledger.sums[h.key] += n // 0 unless it was settled
	case h.end != how:
		w.Fail("%v ended: %s; and now %s, says %s", h, h.end, how, from)
	}
	h.end = how
	return true
}

// heldOf returns what open holds set aside of a counter, as CHELD prints it; "": it has had none.
func (b *ledger) heldOf(key string) string {
	var up, down, open int
	has, holds := strings.HasPrefix(key, "{stock"), b.holds
	if strings.HasPrefix(key, till) {
		has, holds = true, b.tillHolds
	}
	for _, h := range holds {
		if has = has || h.key == key; h.key == key && h.end == "" {
			up, down, open = up+int(max(h.amount, 0)), down+int(min(h.amount, 0)), open+1
		}
	}
	if !has {
		return ""
	}
	return fmt.Sprint(up, down, open)
}

// finish ends the holds that may end by themselves, and fails the world unless each deal was applied.
func (b *ledger) finish(l *Workload, s Sender) {
	for _, h := range b.holds {
		if e := h.newEnding(""); h.end == "" && time.Until(time.UnixMilli(h.expires)) < openAtEnd/2 {
			l.mustEnd(e.String(), func() bool { return e.send(l, s, time.Second) })
		}
	}
	for _, d := range b.deals {
		d.complete(l.World, d)
	}
	b.finishMoves(l.World)
}
