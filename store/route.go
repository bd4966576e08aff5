package store

// Routing finds each operation's keys' partitions, and hashes keys and opids: all
// that takes no lock.

// minSplit is how many operations a batch must have to be split, and minOthers how
// many of them outside of its largest share, or it is one share: enough to be worth
// letting others at the locks sooner. Tests set them lower.
var minSplit, minOthers = 64, 32

// A batch has sharesPerProc shares for each processor, so that batches in as many
// goroutines seldom want the same one; maxShares bounds them.
const (
	sharesPerProc = 4
	maxShares     = 32
)

// skipped reports whether an operation has no turn: it is a Nop or has failed.
func (op *Op) skipped() bool { return op.Kind == Nop || op.Err != nil }

// routeAll routes a batch that is decided as a whole.
func (x *execution) routeAll() {
	for i := range x.ops {
		if !x.ops[i].skipped() {
			x.route(i)
		}
	}
	x.shares = append(x.shares, share{to: len(x.refs)})
}

// checkSizes refuses keys and opids out of bounds, before anything else.
func (op *Op) checkSizes() error {
	if op.Kind.has(allKeys) {
		return nil
	}
	if op.Kind.has(hasID) && (len(op.ID) == 0 || len(op.ID) > MaxOpID) {
		return ErrOpIDSize
	}
	if len(op.Keys) > MaxKeys {
		return ErrTooManyKeys
	}
	if !op.Kind.has(manyKeys) {
		return checkKey(op.Key)
	}
	for _, k := range op.Keys {
		if err := checkKey(k); err != nil {
			return err
		}
	}
	return nil
}

func (x *execution) route(i int) {
	op := &x.ops[i]
	op.run = opRun{first: len(x.refs), firstItem: len(x.items)}
	switch {
	case op.Kind == regionCursor || op.Kind == regionLevel: // it has no key, but the ref tells its partition
		first, _ := slotRange(int(op.Delta), len(x.s.partitions))
		x.fill(x.newRef(), i, nil, first)
		x.refs[len(x.refs)-1].failed = true // there is nothing to find
	case op.Kind.has(allKeys):
		x.flushes = true
		for i := range x.s.partitions {
			x.mask[i/64] |= 1 << (i % 64)
		}
	case op.Kind.has(manyKeys):
		for _, k := range op.Keys {
			x.addRef(i, k)
		}
	default:
		x.addRef(i, op.Key)
	}
	if op.Kind.has(hashesItems) {
		for _, item := range op.Keys {
			x.items = append(x.items, x.s.hashes.ids.Hash(op.Key, item))
		}
	}
	op.run.n, op.run.items = len(x.refs)-op.run.first, len(x.items)-op.run.firstItem
}

func (x *execution) addRef(op int, key []byte) { x.fill(x.newRef(), op, key, Slot(key)) }

func (x *execution) newRef() *ref {
	if len(x.refs) < cap(x.refs) {
		x.refs = x.refs[:len(x.refs)+1]
	} else {
		x.refs = append(x.refs, ref{})
	}
	return &x.refs[len(x.refs)-1]
}

// fill makes r the ref of a key of an operation. Field by field, see Op.reset;
// what a verdict or hasTime tells of may be left over.
func (x *execution) fill(r *ref, op int, key []byte, slot uint16) {
	n := int(slot >> x.s.shift)
	x.mask[n/64] |= 1 << (n % 64)
	r.op, r.key, r.slot, r.keyHash, r.p = op, key, slot, hotHash(key), &x.s.partitions[n].machine
	r.c, r.t, r.disk, r.hash = nil, nil, nil, 0
	r.verdict, r.dismissed, r.hasTime, r.failed, r.others = verdictUnknown, false, false, false, 0
	o := &x.ops[op]
	r.hears = o.Kind == regionHear
	if r.asks = o.Kind.has(hasID); r.asks {
		r.hash = x.s.hashes.ids.Hash(key, o.ID)
	}
}

// splits reports whether an operation can be in a batch that is split: it has
// exactly one key, and whether it has its turn depends on no other.
func (op *Op) splits() bool { return !op.Kind.has(manyKeys | allKeys | hashesItems | unsplit) }

// split routes a batch whose operations all have one key: refs are placed share
// by share, in the order of operations within each, which is what the clients
// can see. Where sharing is not worth it there is one share, which is decided piece by
// piece. It returns false, with nothing done, if the batch must be decided as a whole, or
// is small.
func (x *execution) split() bool {
	shares := min(sharesPerProc*x.s.procs, maxShares, len(x.s.partitions))
	if len(x.ops) < minSplit {
		return false
	}
	var ends [maxShares + 1]int
	x.slots = x.slots[:0]
	for i := range x.ops {
		op := &x.ops[i]
		if op.skipped() {
			x.slots = append(x.slots, 0)
			continue
		}
		if !op.splits() {
			return false
		}
		slot := Slot(op.Key)
		x.slots = append(x.slots, slot)
		ends[x.shareOf(slot>>x.s.shift, shares)+1]++
	}
	total, most := 0, 0
	for _, n := range ends[1 : shares+1] {
		total, most = total+n, max(most, n)
	}
	if x.s.procs < 2 || total-most < minOthers {
		shares, ends[1] = 1, total
	}
	for i := range shares {
		ends[i+1] += ends[i]
		x.shares = append(x.shares, share{from: ends[i], to: ends[i+1]})
	}
	x.refs = grown(x.refs, ends[shares])
	for i := range x.ops {
		op := &x.ops[i]
		if op.skipped() {
			continue
		}
		next := &ends[x.shareOf(x.slots[i]>>x.s.shift, shares)]
		op.run = opRun{first: *next, n: 1}
		x.fill(&x.refs[*next], i, op.Key, x.slots[i])
		*next++
	}
	return true
}

// assign gives every share its partitions.
func (x *execution) assign() {
	left := x.touched
	for i := range x.shares {
		n := 0
		for n < len(left) && x.shareOf(left[n].p.id, len(x.shares)) == i {
			n++
		}
		x.shares[i].touched, left = left[:n], left[n:]
	}
	x.share = x.shares[0]
}

// shareOf is the share of a partition: as many for each.
func (x *execution) shareOf(partition uint16, shares int) int {
	return int(partition) * shares / len(x.s.partitions)
}

// grown returns a slice of n elements, with the memory of s if that is enough.
// Their contents are left over.
func grown(s []ref, n int) []ref {
	if n > cap(s) {
		s = make([]ref, n+n/4)
	}
	return s[:n]
}
