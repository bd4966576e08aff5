package persistence

import (
	"encoding/binary"

	"github.com/fbfkv/fbfkv/persistence/disk"
)

// kindPage starts the keys of pages.
const kindPage = 'p'

const (
	pagePrefixSize = 1 + 2 + 8
	pageKeySize    = pagePrefixSize + 4
	pageHeaderSize = 8
)

// Page is a part of the memory of an object, with the sequence of the log that it
// reflects: what is counted twice is wrong, so that redo must know.
type Page struct {
	Object  uint64 // its number within the partition
	Number  uint32
	Seq     uint64
	Content []byte
}

// PutPage writes a page, replacing an earlier one. It is copied.
func (c *Changes) PutPage(partition uint16, p Page) {
	op := c.b.SetDeferred(pageKeySize, pageHeaderSize+len(p.Content))
	putPagePrefix(op.Key, partition, p.Object)
	binary.BigEndian.PutUint32(op.Key[pagePrefixSize:], p.Number)
	binary.BigEndian.PutUint64(op.Value, p.Seq)
	copy(op.Value[pageHeaderSize:], p.Content)
	finish(op)
}

// DropPages deletes all pages of the objects first to last of a partition, both included,
// in constant time.
func (c *Changes) DropPages(partition uint16, first, last uint64) {
	op := c.b.DeleteRangeDeferred(pagePrefixSize, pagePrefixSize)
	putPagePrefix(op.Key, partition, first)
	putPagePrefix(op.Value, partition, last)
	successor(op.Value)
	finish(op)
}

// Pages calls fn for the pages of a partition, ascending by (object, number), until it
// returns an error. It sees one instant of the DB. fn borrows the content.
func (db *DB) Pages(partition uint16, fn func(Page) error) error {
	lower, upper := make([]byte, 3), make([]byte, 3)
	for _, k := range [][]byte{lower, upper} {
		k[0] = kindPage
		binary.BigEndian.PutUint16(k[1:], partition)
	}
	return db.scan("read pages", lower, successor(upper), func(key, value []byte) (bool, error) {
		pg, err := pageOf(key, value)
		if err != nil {
			return false, err
		}
		return true, fn(pg)
	})
}

// pageOf decodes a page; the result borrows both.
func pageOf(key, value []byte) (Page, error) {
	if len(key) != pageKeySize || len(value) < pageHeaderSize {
		return Page{}, disk.Corruptf("a page with a key of %d and a value of %d bytes", len(key), len(value))
	}
	return Page{
		Object:  binary.BigEndian.Uint64(key[3:]),
		Number:  binary.BigEndian.Uint32(key[pagePrefixSize:]),
		Seq:     binary.BigEndian.Uint64(value),
		Content: value[pageHeaderSize:],
	}, nil
}

func putPagePrefix(b []byte, partition uint16, object uint64) {
	b[0] = kindPage
	binary.BigEndian.PutUint16(b[1:], partition)
	binary.BigEndian.PutUint64(b[3:], object)
}
