package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"unicode/utf8"

	"github.com/fbfkv/fbfkv/fbf"
	"github.com/fbfkv/fbfkv/store/coding"
)

// One object that cannot be read keeps nothing else from being served, neither counters nor other
// objects. A type may refuse its encoding in a snapshot, one of its pages, or a logged change; a
// page may be missing. A damaged file is another matter: checksums find it, and recovery uses the
// older snapshot.
//
// The rule is the same at recovery, on a follower and in Check. A partition that moves brings the
// objects that are unreadable already; if another one becomes so on its way, the move is refused.
//
//   - The object becomes unreadable. Its key stays, with its type and its expiry, and says why.
//   - Redo ignores every change of an unreadable object. So it stays unreadable, even for a later
//     version that could read what is on disk, which lacks those changes.
//   - An entry that deletes or replaces the key ends that. From clients DEL, UNLINK, SET, MSET and
//     FLUSHALL are accepted, and the key may expire. Every other operation on the key is
//     ErrUnreadable.
//   - A checkpoint writes the mark in the place of the object, and begins anew if it has captured
//     the object before. So the mark goes wherever snapshots go: into backups, to a replica that is
//     behind the log, with a partition that moves. Each of these counts and names it. The object's
//     pages stay on disk until the key is deleted.
//
// To decide never makes an object unreadable. A change that redo refuses live freezes the store (G8).

// ErrUnreadable means that the object under a key cannot be read.
var ErrUnreadable = errors.New("the key cannot be read; DEL drops it, and a backup may still have it")

// unreadable is an object that cannot be read.
type unreadable struct {
	why     string
	created uint64 // the name of its pages; 0: it has none
}

// maxWhy bounds unreadable.why, bytes.
const maxWhy = 300

func newUnreadable(cause error, o object) *unreadable {
	why := cause.Error()
	for n := maxWhy; len(why) > n; n-- {
		if utf8.RuneStart(why[n]) {
			why = why[:n]
		}
	}
	u := &unreadable{why: why}
	if o, ok := o.(*paged); ok {
		u.created = o.created
	}
	return u
}

func (u *unreadable) bytes() uint64            { return 0 }
func (u *unreadable) due(int64) bool           { return false }
func (u *unreadable) upkeep(*turn, *ref) error { return nil }
func (u *unreadable) redo(change) error        { return nil }
func (u *unreadable) release()                 {}

func (u *unreadable) encode(*machine) io.Reader {
	return bytes.NewReader(coding.AppendBytes(binary.AppendUvarint(nil, u.created), []byte(u.why)))
}

// decodeUnreadable reads what encode wrote.
func decodeUnreadable(in io.Reader) (object, error) {
	b, err := io.ReadAll(io.LimitReader(in, maxWhy+3*binary.MaxVarintLen64))
	if err != nil {
		return nil, err
	}
	r := reader{coding.Reader{Rest: b}}
	u := &unreadable{created: r.Uvarint(), why: string(r.Bytes())}
	if r.End(); len(u.why) > maxWhy {
		r.Fail()
	}
	return u, r.err()
}

// objectError says what is wrong with one object, and with nothing else.
type objectError struct{ err error }

func (e *objectError) Error() string { return e.err.Error() }
func (e *objectError) Unwrap() error { return e.err }

// spoils reports whether an error is about the object alone: not if memory was lacking.
func spoils(err error) bool { return err != nil && !errors.Is(err, fbf.ErrMemory) }

// markUnreadable makes the object under a key unreadable.
func (p *machine) markUnreadable(c *counter, cause error) {
	o := c.object()
	if _, is := o.(*unreadable); is {
		return
	}
	u := newUnreadable(cause, o)
	p.memory.addObject(-int64(o.bytes()))
	p.retire(o.release)
	c.setObject(u)
	p.unreadable++
	p.spoiled++
}

// redoSpoiled makes the object of an entry unreadable, if that is why the entry cannot be redone.
func (p *machine) redoSpoiled(e *entry, seq uint64, err error) error {
	var bad *objectError
	if !errors.As(err, &bad) || e.c == nil {
		return err
	}
	if e.c.object() == nil { // its creation was refused
		p.putObject(e.c, e.typ, newUnreadable(bad, nil))
		p.spoiled++
		e.c.seq = seq
		return nil
	}
	p.markUnreadable(e.c, bad)
	return nil
}

// spoilUnloaded makes objects unreadable that should have had pages on disk. After the log is
// redone nothing excuses that any more.
func (p *machine) spoilUnloaded() {
	for _, c := range p.objects {
		if o, ok := c.object().(*paged); ok && o.misses() {
			p.markUnreadable(c, errors.New("its pages are missing"))
		}
	}
}

// spoiledHere fails if an object has become unreadable that the source of a partition could read:
// this server must not take its place.
func (p *machine) spoiledHere() error {
	if p.spoiled == 0 {
		return nil
	}
	return fmt.Errorf("%w: %v", errCorruptEntry, p.listUnreadable())
}

// Unreadable is a key whose object cannot be read.
type Unreadable struct {
	Partition uint16
	Key       string
	Why       string
}

// String says it in a sentence.
func (u Unreadable) String() string { return fmt.Sprintf("key %q cannot be read: %s", u.Key, u.Why) }

// listUnreadable returns the partition's unreadable keys in order. The partition is locked, or the
// caller's own.
func (p *machine) listUnreadable() (list []Unreadable) {
	if p.unreadable == 0 {
		return nil
	}
	for _, key := range slices.Sorted(maps.Keys(p.objects)) {
		if u, ok := p.objects[key].object().(*unreadable); ok {
			list = append(list, Unreadable{Partition: p.id, Key: key, Why: u.why})
		}
	}
	return list
}

// readable refuses an operation on a key whose object cannot be read.
func (x *turn) readable(op *Op) error {
	if op.Kind.has(anyObject) || op.Kind.internal() {
		return nil
	}
	for i := range x.of(op) {
		r := &x.of(op)[i]
		if r.c == nil || !x.alive(r) {
			continue
		}
		if u, is := r.c.object().(*unreadable); is {
			return fmt.Errorf("%w (key %q: %s)", ErrUnreadable, r.key, u.why)
		}
	}
	return nil
}
