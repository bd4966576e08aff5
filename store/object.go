package store

import (
	"bufio"
	"errors"
	"fmt"
	"io"
)

// Types of keys. Counters stay inline on the hot path. A key of any other type holds an
// object, whose type is one file that implements object and objectType, and one row of
// objectTypes. The rest of the package handles objects through these alone. An
// operation on an object, as a row of kinds:
//
//	decide   objectAt finds the object; createObject makes one, changeObject logs what
//	         the type's decide function has found: bytes that only the type can read
//	redo     create and redo make the same of these bytes, live and at recovery
//	snapshot encode and decode
//
// An object that is large, or whose changes cannot be redone twice, keeps its state in
// pages instead of snapshots (pages.go).
//
// DEL, EXPIRE, TYPE, SCAN, FLUSHALL, MEMORY USAGE and the memory pool need nothing more.

// Type is the type of a key. Values are part of the format (FORMAT.md).
type Type uint8

// The types of keys.
const (
	TypeNone Type = iota
	TypeCounter
	TypeFilter
	TypeBloom
	TypeCountMin

	firstObject = TypeCounter + 1
	maxTypes    = 16
)

// objectTypes are the types of keys that hold objects.
var objectTypes = [maxTypes]objectType{
	TypeFilter:   filterType{},
	TypeBloom:    bloomType{},
	TypeCountMin: countMinType{},
}

// isObject reports whether keys of the type hold objects.
func (t Type) isObject() bool { return t >= firstObject }

// object is the value of a key that is not a counter. The partition's lock guards it.
type object interface {
	// bytes is the memory that the object has of the pool.
	bytes() uint64
	// due reports whether upkeep has something to log.
	due(logged int64) bool
	// upkeep logs the changes that no operation makes, such as refreshes. An error
	// means that the disk has no space for it.
	upkeep(x *turn, r *ref) error
	// redo applies a logged change. It consults no clock, and may be handed changes
	// that a decoded object contains already: see encode. An error means damage.
	redo(change) error
	// encode begins to encode the object, in the state of p.seq. Changes go on between
	// two calls of Read, each of which has the lock. At recovery redo is handed every
	// change after the p.seq of now. So the bytes read must not depend on later changes,
	// unless making these again does no harm (bits that are set), or unless the encoding
	// says which sequence it reflects (p.seq during Read). Then redo leaves out the
	// changes up to that.
	// Objects to which the same has happened are encoded alike: Check compares them.
	encode(p *machine) io.Reader
	// release frees its memory, once no encoding is under way.
	release()
}

// objectType is a type of keys that hold objects: a row of objectTypes.
type objectType interface {
	// kinds declares its operations. The first is Kind(type)*kindsPerType.
	kinds() []kind
	// create returns a new object. options is what createObject was given.
	create(options []byte, at moment) (object, error)
	// decode reads exactly what encode wrote. The object takes at most maxBytes.
	decode(r *bufio.Reader, maxBytes uint64) (object, error)
}

// change is a logged change of an object.
type change struct {
	p    *machine
	key  []byte
	what []byte // as changeObject was given it
	hash uint64 // likewise; 0 when it was read from the log
	seq  uint64
	at   moment
}

// objectAt finds the object that an operation is about; nil if its key does not exist.
// T, a pointer, is the type of the objects of type t.
func objectAt[T object](x *turn, op *Op, t Type) (r *ref, o T, err error) {
	r = &x.of(op)[0]
	o, err = objectOf[T](x, r, t)
	return r, o, err
}

// objectOf is objectAt for one of several keys.
func objectOf[T object](x *turn, r *ref, t Type) (o T, err error) {
	if !x.alive(r) {
		return o, nil
	}
	if r.c.kind != t {
		return o, ErrWrongType
	}
	return r.c.object().(T), nil
}

// createObject logs a new object under a key that does not exist, if there is memory
// for it: bytes of the pool.
func (x *turn) createObject(r *ref, t Type, bytes uint64, options []byte) error {
	if r.p.holds.keys[string(r.key)] != nil {
		return ErrKeyHeld // they could not be seen or settled any more
	}
	pl := planner{memory: r.p.memory, ofObject: true}
	if !pl.grant(bytes) {
		return errObjectMemory
	}
	pl.settle()
	if r.c.kind != TypeNone {
		x.remove(r) // expired, not yet removed
	}
	x.log(r.p, &entry{kind: entryCreate, flags: flagCreated, typ: t, key: r.key, id: options, c: r.c})
	return nil
}

// changeObject logs a change of the object under a key: what, which redo is handed with
// a hash, if decide has computed one already.
func (x *turn) changeObject(r *ref, what []byte, hash uint64) {
	x.log(r.p, &entry{kind: entryChange, typ: r.c.kind, key: r.key, id: what, c: r.c, hash: hash})
}

// changed returns the key of an object that an entry changes; nil if memory has that already, or
// lost the object with its snapshots.
func (p *machine) changed(e *entry, seq uint64) (*counter, error) {
	c := e.c
	switch {
	case seq <= p.marks.filters:
		return nil, nil
	case c != nil && c.kind == e.typ:
		c.seq = max(c.seq, seq)
		return c, nil
	case p.marks.rebuilt:
		return nil, nil
	}
	return nil, fmt.Errorf("%w: %q is not of type %d", errCorruptEntry, e.key, e.typ)
}

// redoChange redoes a change of an object.
func (p *machine) redoChange(e *entry, seq uint64, at moment) error {
	c, err := p.changed(e, seq)
	if c == nil {
		return err
	}
	o := c.object()
	before := o.bytes()
	err = o.redo(change{p: p, key: e.key, what: e.id, hash: e.hash, seq: seq, at: at})
	p.memory.addObject(int64(o.bytes()) - int64(before))
	return e.refused(err)
}

// redoCreate puts a new object under a key.
func (p *machine) redoCreate(e *entry, seq uint64, at moment) error {
	if seq <= p.marks.filters {
		return nil
	}
	if e.c.object() != nil {
		return fmt.Errorf("%w: %q exists already", errCorruptEntry, e.key)
	}
	o, err := objectTypes[e.typ].create(e.id, at)
	if err != nil {
		return e.refused(err)
	}
	p.beginPages(o, seq)
	p.putObject(e.c, e.typ, o)
	e.c.seq = seq
	return nil
}

// refused is what an entry that an object's type does not accept means; nil if it does.
func (e *entry) refused(err error) error {
	switch {
	case !spoils(err):
		return err
	case !errors.Is(err, errCorruptEntry):
		err = fmt.Errorf("%w: key %q: %w", errCorruptEntry, e.key, err)
	}
	return &objectError{err}
}

// putObject makes c the key of an object.
func (p *machine) putObject(c *counter, t Type, o object) {
	p.memory.addObject(int64(o.bytes()))
	c.setObject(o)
	c.kind, c.value, c.expire = t, 0, 0
	p.objects[c.key()] = c
	p.ofType[t]++
	if _, is := o.(*unreadable); is {
		p.unreadable++
	}
	p.hot.changed(c)
}

// dropObject frees the object under a key.
func (p *machine) dropObject(c *counter) {
	if c == nil || c.object() == nil {
		return
	}
	o := c.object()
	p.memory.addObject(-int64(o.bytes()))
	p.retire(o.release)
	p.endPages(o)
	delete(p.objects, c.key())
	p.ofType[c.kind]--
	if _, is := o.(*unreadable); is {
		p.unreadable--
	}
	c.setObject(nil)
	c.kind = TypeNone
	p.hot.track(c)
}

// object is what the key holds; nil if it is a counter, or nothing.
func (c *counter) object() object {
	if c.extra == nil {
		return nil
	}
	return c.extra.object
}

// setObject puts an object under the key, or none.
func (c *counter) setObject(o object) {
	if c.extra == nil {
		c.extra = new(counterExtra)
	}
	c.extra.object = o
}

// readAll reads exactly n bytes without trusting n for the allocation.
func readAll(r io.Reader, n uint64) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, int64(min(n, 1<<40))))
	if err == nil && uint64(len(b)) != n {
		err = io.ErrUnexpectedEOF
	}
	return b, err
}
