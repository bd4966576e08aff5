package sim

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// part is one command of a transaction on keys of several kinds.
type part interface {
	fmt.Stringer
	words() []string
	// sending notes that it is sent once. The function that it returns takes in the answer, and
	// reports whether it was applied now.
	sending(l *Workload) (answered func(reply any, from string) (applied bool))
}

// mixed is a transaction on keys of several kinds. It is a request.
type mixed struct {
	key     string // of one slot
	stepped bool   // CMULTI: what is behind an error is not executed
	parts   []part
}

func (m *mixed) String() string { return fmt.Sprint(m.parts) }

// words implements part.
func (o *Op) words() []string { return o.command() }

// sending implements part.
func (o *Op) sending(l *Workload) func(reply any, from string) bool {
	l.History.Sent(o)
	return func(reply any, from string) bool { return l.answer(o, reply, from) }
}

// mix does several things with the keys of one slot in one transaction: with a filter, a sketch and counters.
func (u *user) mix() {
	i := u.rng.IntN(countSketches)
	key, _ := sketchKey(i)
	filter := key + "bf"
	if !u.makeSketch(i) || !u.makeFilter(filter) {
		return
	}
	m := &mixed{key: key, stepped: u.rng.IntN(2) == 0}
	for len(m.parts) < 2+u.rng.IntN(4) {
		most := 5
		if u.Suffix != "" {
			most = 3 // the others are for those who share nothing
		}
		switch u.rng.IntN(most) {
		case 3:
			m.parts = append(m.parts, u.newTransfer(key+"a", key+"b"))
		case 4:
			m.parts = append(m.parts, &u.newHold(key+"h", u.amount(), openAtEnd).deal)
		case 0:
			m.parts = append(m.parts, &filterAdd{key: filter, id: u.id(), items: u.bloomItems()})
		case 1:
			m.parts = append(m.parts, &sketchCount{key: key, id: u.id(), counts: u.someCounts()})
		default:
			m.parts = append(m.parts, u.History.Send(fmt.Sprint(key, "k", u.rng.IntN(3), u.Suffix), u.id()))
		}
	}
	u.request(m)
}

// send implements request.
func (m *mixed) send(l *Workload, s Sender, patience time.Duration) bool {
	begin := "MULTI"
	if m.stepped {
		begin = "CMULTI"
	}
	commands := [][]string{{begin}}
	var answered []func(reply any, from string) bool
	for _, p := range m.parts {
		commands, answered = append(commands, p.words()), append(answered, p.sending(l))
	}
	commands = append(commands, []string{"EXEC"})
	replies, from, err := s.Send(m.key, patience, commands...)
	complete := err == nil
	for i, reply := range replies {
		complete = l.settled(commands[i], reply, from) && complete
	}
	if !complete {
		return false
	}
	list, _ := replies[len(replies)-1].([]any)
	if len(list) != len(m.parts) {
		l.World.Fail("%q is answered %v by %s", commands, replies[len(replies)-1], from)
		return false
	}
	return m.whole(l, list, answered, from)
}

// whole takes in the replies of a transaction of which all is applied or nothing, or in steps the
// first part. It reports whether all of it was answered.
func (m *mixed) whole(l *Workload, list []any, answered []func(reply any, from string) bool,
	from string) bool {
	var did strings.Builder // for each part: applied, known, or refused
	for i, element := range list {
		switch {
		case strings.HasSuffix(did.String(), "r") && strings.Contains(fmt.Sprint(element), "not executed"),
			!l.settled(m.parts[i].words(), element, from):
			did.WriteByte('r')
		case answered[i](element, from):
			did.WriteByte('a')
		default:
			did.WriteByte('k')
		}
	}
	text := did.String()
	done := strings.TrimRight(text, "r")
	switch {
	case strings.Contains(done, "r"), !m.stepped && done != text && done != "":
		l.World.Fail("%v is answered %v by %s: a part of it is refused", m, list, from)
	case strings.Contains(done, "ka") && !m.stepped, strings.Contains(done, "ak"):
		l.World.Fail("%v is answered %v by %s: it was done in part", m, list, from)
	}
	return done == text
}

// complete fails the world if no answer says that a part was applied; the history does so for counters.
func (m *mixed) complete(w *World) {
	for _, p := range m.parts {
		switch p := p.(type) {
		case *filterAdd:
			p.outcome.complete(w, p)
		case *deal:
			p.outcome.complete(w, p)
		case *sketchCount:
			p.outcome.complete(w, p)
		}
	}
}

// bloomItems returns some items of a filter.
func (u *user) bloomItems() (items []string) {
	for _, i := range u.rng.Perm(bloomItems)[:1+u.rng.IntN(bloomAtOnce)] {
		items = append(items, itemNames()[i])
	}
	return items
}

// plainAdd adds items to a filter without an opid. It is a request.
type plainAdd struct {
	outcome
	key   string
	items []string
}

func (a *plainAdd) words() []string { return append([]string{"BF.MADD", a.key}, a.items...) }

func (a *plainAdd) String() string { return strings.Join(a.words(), " ") }

// addPlainly adds items to a filter without an opid.
func (u *user) addPlainly() {
	key := fmt.Sprint("bf-plain", u.rng.IntN(bloomFilters))
	if !u.makeFilter(key) {
		return
	}
	u.request(&plainAdd{key: key, items: u.bloomItems()})
}

// send implements request.
func (a *plainAdd) send(l *Workload, s Sender, patience time.Duration) bool {
	b := &l.sketches
	b.mu.Lock()
	f := b.filter(a.key)
	f.plain = true
	for _, item := range a.items {
		if a.sends == 0 {
			f.sent[item]++
		}
	}
	a.sends++
	known := make([]bool, len(a.items))
	for i, item := range a.items {
		known[i] = f.known[item]
	}
	b.mu.Unlock()
	reply, from, ok := l.Do(s, a.key, patience, a.words()...)
	if !ok {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	news, _ := reply.([]any)
	if len(news) != len(a.items) {
		l.World.Fail("%v is answered %v by %s", a, reply, from)
		return true
	}
	var own []any // what it says of items that nobody else adds
	for i, item := range a.items {
		isNew := news[i] == int64(1)
		switch {
		case isNew && (known[i] || f.claimed[item]):
			l.World.Fail("%v: %s is new, says %s, and was there", a, item, from)
		case !isNew && a.sends == 1 && f.sent[item] == 1:
			l.World.Fail("%v: %s is not new, says %s, and nobody else has added it", a, item, from)
		}
		f.known[item], f.claimed[item] = true, f.claimed[item] || isNew
		if f.sent[item] == 1 && !slices.Contains(own, news[i]) {
			own = append(own, news[i])
		}
	}
	if a.answers++; a.answers == 1 && len(own) > 1 {
		l.World.Fail("%v is answered %v by %s: it was done in part", a, reply, from)
	}
	return true
}
