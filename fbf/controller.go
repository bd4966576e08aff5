package fbf

import "math"

// Constants of the controller.
const (
	// the first growth in two windows multiplies the ids per generation at least by this
	firstGrowth  = 1.3
	growStep     = 6  // no growth exceeds this while there are few segments
	manySegments = 8  // live segments beyond which steps become larger, lest there be too many
	maxGrowth    = 64 // and no step, however steep the surge, exceeds this
	halvings     = 8  // how often a segment that was refused is asked for at half the size
	// least share of what a new segment is for that it holds at once, while others take part of the
	// target
	growShare  = 0.8
	smallBytes = 128 << 10 // up to which a filter grows in one step
	// and as many times that, for the last of filters that are filled evenly; maxGrowth allows for
	// it
	phaseSpan    = 4
	lastShare    = 0.75    // of what the others leave of the target, for a segment that fits the load
	interimShare = 0.25    // and for one that a larger one will follow
	fewSegments  = 3       // live segments beyond which none takes more than half of the remaining share
	leastLeft    = 1 << 20 // a share of the target smaller than one in so many counts as none
	// periods that must agree before a size is reduced, so that the old size has drained within two
	// windows
	quietPeriods = 3
	shrinkFit    = 0.88 // share of the size below which it is
	maxSegments  = 12   // live segments; each costs a check S cache lines
	// share of its limit below which a generation is not sealed as soon as its period ends
	sealFill   = 0.75
	clearPiece = 1 << 15
)

// denial is the memory of a refused request for memory.
type denial struct {
	until int64 // 0: none in force
	times uint8 // denials in a row
	// shrinkUntil delays further attempts at a smaller segment.
	shrinkUntil int64
}

// Due reports whether Plan may have something to do at now. Ask it before every insert,
// or before every batch of at most Room inserts.
func (f *Filter) Due(now int64) bool { return now >= f.dueAt || f.room == 0 }

// schedule derives when Plan will next have something to do.
func (f *Filter) schedule() {
	s := f.newest()
	f.dueAt = f.nextTime()
	switch n := s.lanes[s.head&7].count; {
	case n < s.limit:
		f.room = s.limit - n
	case f.deny.until != 0:
		f.room = math.MaxUint64 // refused: only time helps
	default:
		f.room = 0
	}
}

// nextTime is the earliest logged time at which something falls due by itself.
func (f *Filter) nextTime() int64 {
	at := int64(math.MaxInt64)
	for i, s := range f.segs {
		newest := i == len(f.segs)-1
		for l := range uint8(lanes) {
			if s.live&bit(l) != 0 && !(newest && (l == s.head || s.r == 2 && l == next(s.head))) {
				at = min(at, s.lanes[l].expire)
			}
		}
	}
	s := f.newest()
	if h := s.lanes[s.head&7]; h.count > 0 {
		full := h.count >= s.limit
		switch free := s.live&bit(s.spare()) == 0; {
		case full && !free && f.deny.until != 0:
			at = min(at, f.deny.until)
		case full:
			at = min(at, h.newest)
		case free:
			at = min(at, f.sealAt(&h))
		default: // whether it has become too large is asked once a period
			t := f.opts.refresh()
			at = min(at, h.start+t+max(0, f.asked-h.start)/t*t)
		}
	}
	if f.idle() {
		at = min(at, max(f.clock, f.deny.shrinkUntil))
	}
	return at
}

// sealAt is when the present generation h is sealed if it does not become full: when
// its period ends, or a quarter of one later if it has not even come near. If it
// were sealed then too, the generations of a load that halts now and then
// would be filled unevenly, some to the limit and some half, and the row would run out of them.
func (f *Filter) sealAt(h *lane) int64 {
	end := h.start + f.opts.refresh()
	if f.asked >= end && float64(h.count) < sealFill*float64(f.newest().limit) {
		return h.start + f.opts.latest()
	}
	return end
}

// NextDue is the logged time at which Plan will have something to do even
// without further inserts; math.MaxInt64 if never.
func (f *Filter) NextDue() int64 {
	at := f.nextTime()
	if s := f.newest(); s.dirty != 0 {
		at = min(at, f.asked+1)
	}
	return at
}

// Plan returns the next outcome due at now, and false when there is none. The
// caller logs it, applies it, and asks again. grant is asked before memory is
// taken; its refusal is itself an outcome (Deny). Decisions are functions
// of counts and logged times alone; nothing is changed but the clearing of
// generations already masked, which goes on in pieces.
func (f *Filter) Plan(now int64, grant func(bytes uint64) bool) (Event, bool) {
	f.asked = max(f.asked, now)
	if f.anyExpired(now) {
		return Event{Kind: Expire, Time: now}, true
	}
	e, ok := f.planNewest(now, grant)
	if !ok {
		f.clearIdle()
		f.schedule()
	}
	return e, ok
}

// clearIdle clears a piece of the masked lines.
func (f *Filter) clearIdle() {
	for _, s := range f.segs {
		if s.dirty != 0 && s.live != 0 {
			s.clearSome(clearPiece)
		}
	}
}

func (f *Filter) anyExpired(now int64) bool {
	for i, s := range f.segs {
		for l := range uint8(lanes) {
			if s.live&bit(l) != 0 && s.expired(l, now, i == len(f.segs)-1) {
				return true
			}
		}
	}
	return false
}

// planNewest decides about the segment that takes the inserts.
func (f *Filter) planNewest(now int64, grant func(uint64) bool) (Event, bool) {
	s := f.newest()
	h := &s.lanes[s.head&7]
	if f.idle() && now >= f.deny.shrinkUntil {
		return f.planIdle(now, grant), true
	}
	full := h.count >= s.limit
	timed := h.count > 0 && now-h.start >= f.opts.refresh()
	free := s.live&bit(s.spare()) == 0
	switch {
	case full && !free:
		if f.deny.until > now {
			return Event{}, false
		}
		return f.planGrow(now, grant), true
	case full || timed:
		if e, ok := f.planShrink(now, grant); ok || !free {
			return e, ok
		}
		late := now - f.sealAt(h)
		if !full && (late < 0 || s.dirty&bit(s.spare()) != 0 && f.opts.refresh() > 2*late) {
			return Event{}, false // let it become full; let the clearing go on in pieces
		}
		return f.rotation(now), true
	}
	return Event{}, false
}

// planIdle replaces a segment in which nothing is left by one of the smallest size.
func (f *Filter) planIdle(now int64, grant func(uint64) bool) Event {
	g := geometryFor(f.opts.Error, f.opts.Roles)
	mu := g.meanFor(laneBudget(f.budget(nil, false)))
	if e, ok := f.tryOpen(now, g, g.minStrip(), mu, grant); ok {
		return e
	}
	return f.denied(now, true)
}

// idle reports that nothing is left in a filter that has grown or was in use, and is not of the
// smallest size.
func (f *Filter) idle() bool {
	s := f.newest()
	if !s.used || s.strip <= s.minStrip() || s.lanes[s.head&7].count > 0 {
		return false
	}
	for _, s := range f.segs {
		if s.holds() {
			return false
		}
	}
	return true
}

// rotation seals the present generation before it exceeds what it was sized for.
func (f *Filter) rotation(now int64) Event {
	s := f.newest()
	interim := f.load(now) > firstGrowth*float64(s.limit)
	mu := f.sized.meanFor(s.geometry, laneBudget(f.budget(s, interim)))
	return Event{Kind: Rotate, Time: now, Segment: s.id, Limit: limitFor(s.strip, mu)}
}

// budget is the share of the target that segment s may use: most of what the
// others leave if it fits the load, little of it if a larger one will follow. Since
// something is always left there is room for one more; and the others' share only
// falls while s is the newest, so that the sum stays below the target (G5).
func (f *Filter) budget(s *segment, interim bool) float64 {
	return f.share(f.opts.Error, s, interim)
}

// share is budget under a target that may not be in force yet.
func (f *Filter) share(target float64, s *segment, interim bool) float64 {
	left := target
	for _, o := range f.segs {
		if o != s {
			left -= o.effectiveFPP()
		}
	}
	switch {
	case left < target/leastLeft:
		return target / 4 // a stricter target than the others were made for, or a degraded filter
	case interim:
		return left * interimShare
	case len(f.segs) > fewSegments:
		return left / 2
	}
	return left * lastShare
}

// load is the inserts per refresh period at the present rate.
func (f *Filter) load(now int64) float64 {
	t := f.opts.refresh()
	s := f.newest()
	var n uint64
	l := s.head
	for {
		n += s.lanes[l&7].count
		age := now - s.lanes[l&7].start
		prev := (l - 1) & 7
		if age >= t/16 || prev == s.head || s.live&bit(prev) == 0 || s.lanes[prev].count == 0 {
			return float64(n) * float64(t) / float64(max(age, t/16, 1))
		}
		l = prev
	}
}

// planGrow answers a surge: every generation is live and the present is full.
// The new segment is sized for the share of the target it has once the others
// have drained: until then it holds somewhat fewer ids, but no smaller one
// need replace it afterwards.
func (f *Filter) planGrow(now int64, grant func(uint64) bool) Event {
	s := f.newest()
	g := geometryFor(f.opts.Error, f.opts.Roles)
	step, goal := f.growth(now)
	mu := g.meanFor(laneBudget(f.budget(nil, step < goal)))
	sized := func(ids float64) uint64 {
		return max(g.stripFor(ids, g.meanFor(laneBudget(f.opts.Error*lastShare)), 1),
			g.stripFor(ids, mu, growShare))
	}
	ids := float64(s.limit)
	// Small ones are cheap, but each takes a share of the target: up there in one step.
	strip := max(sized(ids*step), min(sized(ids*goal), f.small()/lineBytes/uint64(g.s)))
	for range halvings {
		if e, ok := f.tryOpen(now, g, strip, mu, grant); ok {
			return e
		}
		if strip/2 < g.minStrip() || float64(strip/2)*mu < ids/2 {
			break
		}
		strip /= 2
	}
	return f.denied(now, false)
}

// SetPhase, from 0 to 1, keeps filters that fill at the same pace from growing at the
// same moment: a large segment takes tens of milliseconds to get from the system, and
// filters with different phases grow one after the other. Only Plan uses the phase; it is
// not part of the filter's encoding, and 0 at first.
func (f *Filter) SetPhase(phase float64) { f.phase = phase }

// small is up to how many bytes the filter grows in one step: filters of phases apart
// go on from sizes apart.
func (f *Filter) small() uint64 { return uint64(smallBytes * math.Pow(phaseSpan, f.phase)) }

// growth is by how much the next segment's generations exceed the present
// ones. A line holds all eight generations, so that a segment takes its whole
// memory with its first ids: one made at once for a far higher rate, which may
// not last, costs many times what it holds. The rate is therefore followed
// in equal steps, none above growStep, until the number of segments asks for
// more. goal is what the rate asks for in all.
func (f *Filter) growth(now int64) (step, goal float64) {
	s := f.newest()
	least, most := firstGrowth, float64(growStep)
	if now-s.opened < 2*f.opts.Window {
		least = 1 // it only lacks the share of the target that the others have
	}
	for range len(f.segs) - manySegments {
		most = min(4*most, maxGrowth)
		least = most
	}
	goal = max(f.load(now)*headroom/float64(s.limit), least)
	steps := max(1, math.Ceil(math.Log(goal)/math.Log(most)))
	return math.Pow(goal, 1/steps), min(goal, maxGrowth)
}

// tryOpen asks for the memory of a segment.
func (f *Filter) tryOpen(now int64, g geometry, strip uint64, mu float64, grant func(uint64) bool) (Event,
	bool) {
	n := g.lines(strip) * lineBytes
	if len(f.segs) >= maxSegments || f.opts.MaxMemory > 0 && f.bytes+n > f.opts.MaxMemory || !grant(n) {
		return Event{}, false
	}
	return Event{Kind: Open, Time: now, Segment: f.nextID, Lines: g.lines(strip), Limit: limitFor(strip, mu)},
		true
}

// denied is the outcome of a refused request. It backs off in logged time, from a 64th of
// a period, at most a second, doubling up to a quarter of a period, at most a minute.
func (f *Filter) denied(now int64, shrink bool) Event {
	t := f.opts.refresh()
	if shrink {
		return Event{Kind: Deny, Time: now, Until: now + f.opts.Window, Shrink: true}
	}
	wait := min(t/64, 1000) << min(f.deny.times, 6)
	return Event{Kind: Deny, Time: now, Until: now + max(1, min(wait, t/4, 60_000))}
}

// planShrink replaces a segment that has become too large by one that fits the load.
func (f *Filter) planShrink(now int64, grant func(uint64) bool) (Event, bool) {
	s := f.newest()
	if s.strip <= s.minStrip() || now < f.deny.shrinkUntil {
		return Event{}, false
	}
	g := geometryFor(f.opts.Error, f.opts.Roles)
	need, seen := f.peak(now, quietPeriods)
	latest, _ := f.peak(now, quietPeriods-1)
	// falling: wait for where it ends, a window at most, rather than follow in steps
	if need > firstGrowth*latest+10 {
		need, seen = f.peak(now, f.opts.periods())
		seen -= f.opts.periods() - quietPeriods
	}
	if seen < quietPeriods || need*headroom > float64(s.limit)*shrinkFit {
		return Event{}, false
	}
	// Sized for the share of the target it has once the others have drained, limited by the share it has now.
	strip := g.stripFor(need, g.meanFor(laneBudget(f.opts.Error*lastShare)), headroom)
	if strip >= s.strip {
		return Event{}, false
	}
	if e, ok := f.tryOpen(now, g, strip, g.meanFor(laneBudget(f.budget(nil, false))), grant); ok {
		return e, true
	}
	return f.denied(now, true), true
}

// peak is the highest number of inserts per period among the newest segment's
// latest generations, back over up to most periods, and over how many it was seen.
func (f *Filter) peak(now int64, most int64) (need float64, seen int64) {
	s, t, end := f.newest(), f.opts.refresh(), now
	for i := uint8(0); i < lanes && seen < most; i++ {
		at := (s.head - i) & 7
		l := &s.lanes[at]
		if s.live&bit(at) == 0 || l.count == 0 {
			break
		}
		d := max(1, end-l.start)
		need = max(need, float64(l.count)*float64(t)/float64(max(d, t)))
		seen += max(1, d/t)
		end = l.start
	}
	return need, seen
}

// PlanSeal is Plan, but seals the present generation whatever it holds. This forgets
// nothing early and takes no memory. It is false if there is nothing to seal, or no free
// generation to go on with.
func (f *Filter) PlanSeal(now int64) (Event, bool) {
	if f.anyExpired(now) {
		return Event{Kind: Expire, Time: now}, true
	}
	s := f.newest()
	if s.lanes[s.head&7].count == 0 || s.live&bit(s.spare()) != 0 {
		return Event{}, false
	}
	return f.rotation(now), true
}
