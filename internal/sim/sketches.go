package sim

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fbfkv/fbfkv/store/sketch"
)

// Of Bloom filters and count-min sketches. Errors and collisions are so improbable that answers are exact.
const (
	bloomFilters = 3
	bloomError   = 0.000000001
	bloomItems   = 400 // several times the capacity, so that filters grow
	bloomSize    = 50
	bloomAtOnce  = 5

	countSketches = 3
	sketchWidth   = "2000"
	sketchDepth   = "4"
	sketchItems   = 20
)

// sketchBook is what clients know of filters and sketches. It is checked as it grows:
//
//   - an item is new to a filter once, and an answer that it is not new follows an operation that adds it;
//   - a filter reports what an answered operation added, and nothing that none was sent for;
//   - an estimate is not below what was answered before the query, nor above what was ever sent;
//   - an operation that is sent again gets its first answers from a filter, and changes nothing in a sketch.
type sketchBook struct {
	mu       sync.Mutex
	filters  map[string]*filterPage
	sketches map[string]*sketchPage
}

// filterPage is what is known of a filter.
type filterPage struct {
	sent  map[string]int        // by item: in how many operations it is
	new   map[string]*filterAdd // by item: the operation to which it was new
	known map[string]bool       // an operation was answered that has it
	// plain: its operations have no opids. claimed: by item, whether an answer said that it was new.
	plain   bool
	claimed map[string]bool
}

// sketchPage is what is known of a sketch, and of the one into which it is merged, by item.
type sketchPage struct {
	sent, least, merged map[string]int64
}

func (b *sketchBook) filter(key string) *filterPage {
	if b.filters == nil {
		b.filters = make(map[string]*filterPage)
	}
	f := b.filters[key]
	if f == nil {
		f = &filterPage{sent: make(map[string]int), new: make(map[string]*filterAdd),
			known: make(map[string]bool), claimed: make(map[string]bool)}
		b.filters[key] = f
	}
	return f
}

func (b *sketchBook) sketch(key string) *sketchPage {
	if b.sketches == nil {
		b.sketches = make(map[string]*sketchPage)
	}
	k := b.sketches[key]
	if k == nil {
		k = &sketchPage{make(map[string]int64), make(map[string]int64), make(map[string]int64)}
		b.sketches[key] = k
	}
	return k
}

// itemNames returns the names of the items in requests to filters. All bits of an item follow from two
// hashes, so that a few items have only some different bits: of i361, 13 of 31 in the first sub-filter.
// Filters report such an item far more often than bloomError says although nobody has added it.
var itemNames = sync.OnceValue(func() (names []string) {
	subs := subFilters()
	for i := 0; len(names) < bloomItems; i++ {
		name := fmt.Sprint("i", i)
		if !slices.ContainsFunc(subs, func(sub sketch.SubFilter) bool {
			return bitsOf(name, &sub) < int(sub.Hashes)
		}) {
			names = append(names, name)
		}
	}
	return names
})

// subFilters returns those that a filter has once all items are in it.
func subFilters() []sketch.SubFilter {
	header, _ := sketch.AppendBloom(nil, sketch.BloomOptions{Error: bloomError, Capacity: bloomSize,
		Expansion: 2})
	f, err := sketch.UnloadedBloom(header)
	if err != nil {
		panic(err) // AppendBloom wrote it
	}
	more, _, _ := f.Next(bloomItems)
	return append(f.Info().Filters, more...)
}

// bitsOf returns how many bits an item has in a sub-filter.
func bitsOf(item string, sub *sketch.SubFilter) int {
	a, b := sketch.HashItem([]byte(item))
	bits := make(map[uint64]bool)
	for i := range uint64(sub.Hashes) {
		bits[(a+i*b)%(8*sub.Bytes)] = true
	}
	return len(bits)
}

// makeFilter makes a filter, and reports whether it is there.
func (u *user) makeFilter(key string) bool {
	return u.make("BF.RESERVE", key, fmt.Sprintf("%.9f", bloomError), fmt.Sprint(bloomSize))
}

// make makes a filter or a sketch once, if another client has not done it. It reports whether it is there.
func (u *user) make(words ...string) bool {
	key := words[1]
	for !u.made[key] {
		if u.over() {
			return false
		}
		replies, from, _ := u.Send(key, time.Second, words)
		if len(replies) == 1 {
			text := fmt.Sprint(replies[0])
			if strings.Contains(text, "exists") || u.settled(words, replies[0], from) {
				if u.made == nil {
					u.made = make(map[string]bool)
				}
				u.made[key] = true
				return true
			}
		}
		u.rest()
	}
	return true
}

// filterAdd adds items to a filter. It is a request.
type filterAdd struct {
	outcome
	key, id string
	items   []string
	first   string // answer
}

func (a *filterAdd) words() []string {
	return append(append([]string{"BF.CADD", a.key, a.id}, a.items...), "WITHSTATUS")
}

func (a *filterAdd) String() string { return strings.Join(a.words(), " ") }

// send implements request.
func (a *filterAdd) send(l *Workload, s Sender, patience time.Duration) bool {
	answered := a.sending(l)
	reply, from, ok := l.Do(s, a.key, patience, a.words()...)
	if ok {
		answered(reply, from)
	}
	return ok
}

// sending implements part.
func (a *filterAdd) sending(l *Workload) func(reply any, from string) bool {
	b := &l.sketches
	b.mu.Lock()
	defer b.mu.Unlock()
	f := b.filter(a.key)
	for _, item := range a.items {
		if a.sends == 0 {
			f.sent[item]++
		}
	}
	a.sends++
	return func(reply any, from string) bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return a.answer(l, f, reply, from)
	}
}

// answer takes in an answer: for each item, whether it was new.
func (a *filterAdd) answer(l *Workload, f *filterPage, reply any, from string) (applied bool) {
	pair, _ := reply.([]any)
	var news []any
	if len(pair) == 2 {
		news, _ = pair[0].([]any)
	}
	if len(news) != len(a.items) {
		l.World.Fail("%v is answered %v by %s", a, reply, from)
		return false
	}
	applied = pair[1] == int64(1)
	a.take(l.World, a, applied, from)
	if a.first == "" {
		a.first = fmt.Sprint(news)
	}
	if a.first != fmt.Sprint(news) {
		l.World.Fail("%v was answered %s, and now %v by %s", a, a.first, news, from)
	}
	for i, item := range a.items {
		switch other := f.new[item]; {
		case news[i] == int64(0) && f.sent[item] == 1:
			l.World.Fail("%v: %s is not new, says %s, and no other operation has it", a, item, from)
		case news[i] == int64(1) && other != nil && other != a:
			l.World.Fail("%v: %s is new, says %s, and was new to %v", a, item, from, other)
		case news[i] == int64(1):
			f.new[item] = a
		}
		f.known[item] = true
	}
	return applied
}

// addToFilter adds items to a filter, or asks for some.
func (u *user) addToFilter() {
	key := fmt.Sprint("bf", u.rng.IntN(bloomFilters))
	if !u.makeFilter(key) {
		return
	}
	items := u.bloomItems()
	if u.rng.IntN(3) > 0 {
		u.request(&filterAdd{key: key, id: u.id(), items: items})
		return
	}
	b := &u.sketches
	b.mu.Lock()
	f := b.filter(key)
	known := make([]bool, len(items))
	for i, item := range items {
		known[i] = f.known[item]
	}
	b.mu.Unlock()
	reply, from, ok := u.Do(u, key, time.Second, append([]string{"BF.MEXISTS", key}, items...)...)
	if !ok {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	there, _ := reply.([]any)
	for i, item := range items {
		if len(there) != len(items) || known[i] && there[i] != int64(1) || f.sent[item] == 0 &&
			there[i] != int64(0) {
			u.World.Fail("%s is to have %q (%v were added) and %s answers %v", key, items, known, from, reply)
			return
		}
	}
}

// sketchCount counts items in a sketch. It is a request.
type sketchCount struct {
	outcome
	key, id string
	counts  map[string]int64
}

func (a *sketchCount) words() []string {
	words := []string{"CMS.CINCRBY", a.key, a.id}
	for _, item := range slices.Sorted(maps.Keys(a.counts)) {
		words = append(words, item, strconv.FormatInt(a.counts[item], 10))
	}
	return append(words, "WITHSTATUS")
}

func (a *sketchCount) String() string { return strings.Join(a.words(), " ") }

// send implements request.
func (a *sketchCount) send(l *Workload, s Sender, patience time.Duration) bool {
	answered := a.sending(l)
	reply, from, ok := l.Do(s, a.key, patience, a.words()...)
	if ok {
		answered(reply, from)
	}
	return ok
}

// sending implements part.
func (a *sketchCount) sending(l *Workload) func(reply any, from string) bool {
	b := &l.sketches
	b.mu.Lock()
	defer b.mu.Unlock()
	k := b.sketch(a.key)
	if a.sends == 0 {
		for item, n := range a.counts {
			k.sent[item] += n
		}
	}
	a.sends++
	least := maps.Clone(k.least)
	return func(reply any, from string) bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		pair, _ := reply.([]any)
		if len(pair) != 2 {
			l.World.Fail("%v is answered %v by %s", a, reply, from)
			return false
		}
		if a.answers == 0 {
			for item, n := range a.counts {
				k.least[item] += n
				least[item] += n
			}
		}
		applied := pair[1] == int64(1)
		a.take(l.World, a, applied, from)
		k.judge(l.World, a.String(), slices.Sorted(maps.Keys(a.counts)), least, pair[0], from)
		return applied
	}
}

// judge fails the world unless estimates are right: not below what was known when they were asked for.
func (k *sketchPage) judge(w *World, what string, items []string, least map[string]int64, reply any,
	from string) {
	estimates, _ := reply.([]any)
	for i, item := range items {
		n := int64(-1)
		if len(estimates) == len(items) {
			n, _ = estimates[i].(int64)
		}
		if n < least[item] || n > k.sent[item] {
			w.Fail("%s is answered %v by %s, of items %q; of %s %d were answered before, and %d ever sent",
				what, reply, from, items, item, least[item], k.sent[item])
			return
		}
	}
}

// sketchKey returns the names of a sketch and of the one into which it is merged.
func sketchKey(i int) (key, sum string) {
	return fmt.Sprintf("{cms%d}", i), fmt.Sprintf("{cms%d}sum", i)
}

// makeSketch makes a sketch, and reports whether it is there.
func (u *user) makeSketch(i int) bool {
	key, _ := sketchKey(i)
	words := []string{"CMS.INITBYDIM", key, sketchWidth, sketchDepth}
	if i == 0 {
		words = append(words, "WINDOW", "1d")
	}
	return u.make(words...)
}

// someCounts draws items, and how often to count each.
func (u *user) someCounts() map[string]int64 {
	counts := make(map[string]int64)
	for range 1 + u.rng.IntN(4) {
		counts[fmt.Sprint("i", u.rng.IntN(sketchItems))] = int64(1 + u.rng.IntN(5))
	}
	return counts
}

// countInSketch counts items in a sketch, asks for them, or merges it.
func (u *user) countInSketch() {
	i := u.rng.IntN(countSketches)
	key, sum := sketchKey(i)
	if !u.makeSketch(i) {
		return
	}
	counts := u.someCounts()
	switch u.rng.IntN(6) {
	case 0:
		u.estimate(key, slices.Sorted(maps.Keys(counts)), func(k *sketchPage) map[string]int64 {
			return k.least
		})
	case 1:
		if !u.make("CMS.INITBYDIM", sum, sketchWidth, sketchDepth) {
			return
		}
		u.merge(u, key, sum)
		u.estimate(sum, slices.Sorted(maps.Keys(counts)), func(k *sketchPage) map[string]int64 {
			return k.merged
		})
	default:
		u.request(&sketchCount{key: key, id: u.id(), counts: counts})
	}
}

// estimate asks a sketch, or the one into which it is merged.
func (u *user) estimate(key string, items []string, known func(k *sketchPage) map[string]int64) {
	page, _, _ := strings.Cut(key, "sum")
	b := &u.sketches
	b.mu.Lock()
	k := b.sketch(page)
	least := maps.Clone(known(k))
	b.mu.Unlock()
	words := append([]string{"CMS.QUERY", key}, items...)
	if reply, from, ok := u.Do(u, key, time.Second, words...); ok {
		b.mu.Lock()
		defer b.mu.Unlock()
		k.judge(u.World, strings.Join(words, " "), items, least, reply, from)
	}
}

// merge makes one sketch what another one is, once, and reports whether that was answered.
func (l *Workload) merge(s Sender, from, to string) bool {
	b := &l.sketches
	b.mu.Lock()
	k := b.sketch(from)
	least := maps.Clone(k.least)
	b.mu.Unlock()
	_, _, ok := l.Do(s, to, time.Second, "CMS.MERGE", to, "1", from)
	if ok {
		b.mu.Lock()
		defer b.mu.Unlock()
		for item, n := range least {
			k.merged[item] = max(k.merged[item], n)
		}
	}
	return ok
}

// finish merges each sketch that was merged once more, and fails the world unless everything counted once.
func (b *sketchBook) finish(l *Workload, s Sender) {
	for key, k := range b.sketches {
		if len(k.merged) > 0 {
			l.mustEnd(fmt.Sprintf("CMS.MERGE %ssum 1 %s", key, key), func() bool {
				return l.merge(s, key, key+"sum")
			})
		}
	}
	for key, f := range b.filters {
		for item := range f.sent {
			if f.new[item] == nil && !f.plain {
				l.World.Fail("%s: %s is in %d operations, and was new to none", key, item, f.sent[item])
			}
		}
	}
	for _, r := range l.requests {
		switch r := r.(type) {
		case *filterAdd:
			r.complete(l.World, r)
		case *sketchCount:
			r.complete(l.World, r)
		case *mixed:
			r.complete(l.World)
		}
	}
}

// facts returns what is read of filters and sketches once every request has been answered.
func (b *sketchBook) facts() (all []Fact) {
	for _, key := range slices.Sorted(maps.Keys(b.filters)) {
		f := b.filters[key]
		items := slices.Sorted(maps.Keys(f.sent))
		if len(items) == 0 { // it was only asked
			continue
		}
		ones := strings.TrimSuffix(strings.Repeat("1 ", len(items)), " ")
		all = append(all, Fact{[]string{"BF.CARD", key}, fmt.Sprint(len(f.sent))},
			Fact{[]string{"BF.EXISTS", key, "none"}, "0"},
			Fact{append([]string{"BF.MEXISTS", key}, items...), "[" + ones + "]"})
	}
	for _, key := range slices.Sorted(maps.Keys(b.sketches)) {
		k, words := b.sketches[key], []string{"CMS.QUERY", key}
		var counts []int64
		var sum int64
		for _, item := range slices.Sorted(maps.Keys(k.sent)) {
			words, counts, sum = append(words, item), append(counts, k.sent[item]), sum+k.sent[item]
		}
		if len(counts) == 0 { // it was only asked
			continue
		}
		keys := []string{key}
		if len(k.merged) > 0 {
			keys = append(keys, key+"sum")
		}
		for i, key := range keys {
			words = slices.Clone(words)
			words[1] = key
			all = append(all, Fact{words, fmt.Sprint(counts)})
			if windowed, _ := sketchKey(0); i > 0 || key != windowed {
				all = append(all, Fact{[]string{"CMS.INFO", key},
					fmt.Sprintf("[width %s depth %s count %d]", sketchWidth, sketchDepth, sum)})
			}
		}
	}
	return all
}
