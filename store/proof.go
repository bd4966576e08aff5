package store

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fbfkv/fbfkv/persistence/oplog"
	"github.com/fbfkv/fbfkv/store/part"
)

// A directory that was put back from a copy must stop: what it counts gets sequences that other
// regions know already, and never take. It cannot see that by itself, and it must not believe a
// number: whoever may pull can name any. So a source gives out a proof with each position that it
// tells, and readers keep it with their cursors. A region that has a doubt asks the others, at
// their addresses, for their positions in its log and the proofs (Positions), and judges these by
// its own log (Examine). It has a doubt when it starts, and when a request or an answer names an
// entry that it has not got:
//
//	another region                            this one, put back from a copy
//	pulls behind entry 900 ─────────────────► its last entry is 500: ErrAhead, nothing changes
//	                       ◄───────────────── your positions?
//	900, and the proof     ─────────────────► it made that proof, and has no entry 900: ErrRestored
//
// All replicas of a shard have the same key, and give out proofs. The leader has the doubts, as the
// others may know less than was read of them, and logs that the shard is an older copy.

// MaxAhead bounds how far a number that comes from outside may be ahead of the highest known here.
const MaxAhead = 1 << 40

// ErrAhead: somebody names an entry of this region's log that this region has not got. Either that
// is wrong, or the directory is an older copy.
var ErrAhead = fmt.Errorf("%w: an entry that this region has not got", ErrStream)

// ErrAsking: nothing was applied, as the store began to ask the other regions just then. See Asking.
var ErrAsking = errors.New("this server asks the other regions first whether its directory is an older copy: " +
	"try again")

// errWentBack: what this directory has told is not what it has.
var errWentBack = errors.New("the directory is an older copy")

// Asking is the time in which a store that has just started, or leads now, waits with all that it writes, for
// others to say how far they have read it: so it gives out no sequence twice before it hears of that.
type Asking struct{ done chan struct{} }

// Done is closed when that ends.
func (a *Asking) Done() <-chan struct{} { return a.done }

// ask begins it, for Options.RegionAsk at most.
func (s *Store) ask(set *RegionSet) {
	if s.opts.RegionAsk > 0 && set.hasOthers() {
		a := &Asking{make(chan struct{})}
		s.asking.Store(a)
		time.AfterFunc(s.opts.RegionAsk, func() { s.Asked(a) })
	}
}

// Asking returns whether the store waits; nil: it does not.
func (s *Store) Asking() *Asking { return s.asking.Load() }

// Asked ends that, as all others have answered.
func (s *Store) Asked(a *Asking) {
	if a != nil && s.asking.CompareAndSwap(a, nil) {
		close(a.done)
	}
}

// checkAhead refuses a sequence of this region's log that the log has not reached.
func (s *Store) checkAhead(by part.Region, seq, last uint64) error {
	switch {
	case seq <= last:
		return nil
	case EntriesBetween(last, seq) > MaxAhead:
		return streamError("region %d names entry %d of this one, of which the last one is %d", by, seq, last)
	case !s.Leads() || s.unread.Load() != nil: // another replica may have it, or this one knows what it is
		return nil
	}
	return fmt.Errorf("%w: region %d names entry %d, and the last one is %d", ErrAhead, by, seq, last)
}

// proofKey is the key of proofs: of a directory and its copies, or of all nodes of a cluster.
func (s *Store) proofKey() []byte {
	seed := s.Seed()
	k := hmac.New(sha256.New, seed[:])
	k.Write([]byte("positions that regions are told"))
	return k.Sum(nil)
}

// prove returns the proof of a position in the own log.
func (s *Store) prove(of RegionSource, incarnation uint64, end logEnd) (p Proof) {
	if end.seq == 0 {
		return p
	}
	b := of.appendTo(make([]byte, 0, 32))
	for _, n := range []uint64{incarnation, end.seq, end.print} {
		b = binary.LittleEndian.AppendUint64(b, n)
	}
	code := hmac.New(sha256.New, s.proofKey())
	code.Write(b)
	return Proof{end.print, binary.LittleEndian.Uint64(code.Sum(nil))}
}

// Positions answers how far this region has taken another one's log, as far as that has proved it,
// for DecodePositions. Errors: as Pull, but for ErrGap.
func (s *Store) Positions(by part.Region, group, incarnation uint64) ([]byte, error) {
	var all []Position
	for _, p := range s.partitions {
		p.taking.mu.Lock()
		p.lock()
		err := (&Pull{By: by, Group: group, Incarnation: incarnation}).checkPeer(p)
		if err == nil {
			all = p.provedBy(by, all)
		}
		p.mu.Unlock()
		p.taking.mu.Unlock()
		// else another shard has the partition
		if err != nil && !(s.replica != nil && errors.Is(err, ErrNoRegions)) {
			return nil, err
		}
	}
	return appendPositions(nil, all), nil
}

// provedBy adds the positions in a region's logs. The partition is locked, and its taking.
func (p *partition) provedBy(region part.Region, all []Position) []Position {
	ahead := p.heldTaking().proved
	from := len(all)
	for source, at := range p.regions.proved {
		if source.Region == region && at.Seq > ahead[source].Seq {
			all = append(all, at)
		}
	}
	for source, at := range ahead {
		if source.Region == region && at.Seq >= p.regions.proved[source].Seq {
			all = append(all, at)
		}
	}
	slices.SortFunc(all[from:], func(a, b Position) int { return a.compare(b.RegionSource) })
	return all
}

// Examine judges positions in this region's logs that another one has told. If one is proved, and
// the log has another entry there or none, the directory is an older copy: then others do not read
// it any more, clients' writes are refused (ErrRestored), also after a start, and Examine says why.
// It passes over positions without a proof.
func (s *Store) Examine(by part.Region, all []Position) error {
	if !s.Leads() || s.Older() {
		return nil
	}
	older := make(map[uint16][]Position)
	for _, at := range all {
		p, err := s.ownPartition(at.Partition)
		if err != nil {
			continue
		}
		p.lock()
		g, incarnation, last := p.regions, p.logIncarnation(), p.seq
		own := g != nil && g.Self == at.Region
		p.mu.Unlock()
		switch {
		case !own || at.Proof == (Proof{}) ||
			at.Proof != s.prove(at.RegionSource, incarnation, logEnd{at.Seq, at.Print}):
		case at.Seq > last:
			return s.fence(fmt.Errorf("%w: it has told region %d its entry %d, and its last one is %d",
				errWentBack, by, at.Seq, last))
		default:
			older[p.id] = append(older[p.id], at)
		}
	}
	var other *Position
	err := s.compare(older, func(at Position, same bool) {
		if !same && other == nil {
			other = &at
		}
	})
	if err != nil || other == nil {
		return err
	}
	return s.fence(fmt.Errorf("%w: it has told region %d another entry %d than it has", errWentBack, by,
		other.Seq))
}

// differing says of the positions at which pulls go on, and of which this process does not know it, whether
// the log has something else than its source has told: false is that it has the same. Others could not be
// compared, and are the next time.
func (s *Store) differing(qs []Pull) map[RegionTaken]bool {
	unknown, differ := make(map[uint16][]Position), make(map[RegionTaken]bool)
	for i := range qs {
		q := &qs[i]
		p, err := s.ownPartition(q.Partition)
		if q.Code == 0 || q.After == 0 || err != nil {
			continue
		}
		p.lock()
		if _, err = q.check(p); err == nil && q.After <= p.seq && !s.hasTold(q) {
			at := RegionTaken{RegionSource{p.self(), p.id}, q.After}
			unknown[p.id] = append(unknown[p.id], Position{at, Proof{Code: q.Code}})
		}
		p.mu.Unlock()
	}
	err := s.compare(unknown, func(at Position, same bool) { differ[at.RegionTaken] = !same })
	if err != nil {
		s.log.Error("cannot compare what another region has read with the op log", "error", err)
	}
	return differ
}

// maxExamined bounds how much of the op log is read to compare positions with it, bytes of each partition.
const maxExamined = 256 << 20

// compare calls judged for positions with whether the log has what their codes say. It is not called for
// those of which nobody knows that, as they are before the log that is kept, or beyond maxExamined. It
// changes all.
func (s *Store) compare(all map[uint16][]Position, judged func(at Position, same bool)) error {
	from, incarnations := make(map[uint16]uint64, len(all)), make(map[uint16]uint64, len(all))
	for n, of := range all {
		p := s.partitions[n]
		p.lock()
		incarnation, end := p.logIncarnation(), p.end
		p.mu.Unlock()
		of = slices.DeleteFunc(of, func(at Position) bool {
			if at.Seq == end.seq {
				judged(at, s.prove(at.RegionSource, incarnation, end).Code == at.Code)
			}
			return at.Seq == end.seq
		})
		if all[n], incarnations[n] = of, incarnation; len(of) > 0 {
			from[n] = slices.MinFunc(of, func(a, b Position) int { return cmp.Compare(a.Seq, b.Seq) }).Seq
		}
	}
	if len(from) == 0 {
		return nil
	}
	left := s.examines * len(from)
	_, err := s.db.Log().Follow(s.db.Log().BookmarkAt(from), func(record []byte) error {
		if left -= len(record); left < 0 || len(from) == 0 {
			return errEnough
		}
		return oplog.Sections(record, func(partition uint16, seq uint64, content []byte) error {
			if from[partition] == 0 {
				return nil
			}
			end, err := sectionEnd(seq, content)
			if err != nil || end < from[partition] {
				return err
			}
			code := s.prove(all[partition][0].RegionSource, incarnations[partition],
				logEnd{end, fingerprint(content)}).Code
			all[partition] = slices.DeleteFunc(all[partition], func(at Position) bool {
				if at.Seq <= end {
					judged(at, at.Seq < seq || at.Seq == end && at.Code == code)
				}
				return at.Seq <= end
			})
			if len(all[partition]) == 0 {
				delete(from, partition)
			}
			return nil
		})
	})
	if errors.Is(err, errEnough) || errors.Is(err, oplog.ErrBookmark) {
		return nil
	}
	return err
}
