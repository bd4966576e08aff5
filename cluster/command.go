package cluster

import (
	"encoding/binary"
	"fmt"

	"github.com/hashicorp/raft"

	"github.com/fbfkv/fbfkv/persistence/disk"
	"github.com/fbfkv/fbfkv/persistence/oplog"
)

// A command is the data of an entry of Raft's log. Its first byte says what it is:
//
//	01 | reign | origin u64 | number u64 | sections    what partitions have decided
//	02 | origin u64                                    a leader begins
//	03 | pasts (witness.go)                            how far the voters have been
//
// The reign is term u64 | index u64 of the entry with which it began. Others are refused. Numbers
// are big endian.
type commandKind byte

const (
	commandSections commandKind = 1
	commandBegin    commandKind = 2
	commandPasts    commandKind = 3
)

const sectionsHeader = 1 + 16 + 8 + 8

// command is a decoded command.
type command struct {
	kind commandKind
	// reign is the one in which the sections were decided. They count if it is the latest that
	// has begun, and of the entry's term; if not they rest on what may not have been committed,
	// and every replica ignores them (R2).
	reign oplog.Reign
	// origin is the number that the process which proposed the command drew at its start,
	// number counts the sections that it has proposed.
	origin, number uint64
	body           []byte // sections
}

func (c *command) encode(dst []byte) []byte {
	dst = append(dst, byte(c.kind))
	if c.kind == commandSections {
		dst = binary.BigEndian.AppendUint64(dst, c.reign.Term)
		dst = binary.BigEndian.AppendUint64(dst, c.reign.Index)
	}
	if c.kind != commandPasts {
		dst = binary.BigEndian.AppendUint64(dst, c.origin)
	}
	if c.kind == commandSections {
		dst = binary.BigEndian.AppendUint64(dst, c.number)
	}
	return append(dst, c.body...)
}

// decodeCommand decodes a command, whose body is not copied.
func decodeCommand(b []byte) (c command, err error) {
	if len(b) == 0 {
		return c, disk.Corruptf("an entry of the log is empty")
	}
	c.kind = commandKind(b[0])
	rest := b[1:]
	number := func() (n uint64) {
		if len(rest) < 8 {
			err = disk.Corruptf("an entry of the log is too short")
			return 0
		}
		n, rest = binary.BigEndian.Uint64(rest), rest[8:]
		return n
	}
	switch c.kind {
	case commandSections:
		c.reign.Term, c.reign.Index = number(), number()
		c.origin, c.number = number(), number()
	case commandBegin:
		c.origin = number()
		if err == nil && len(rest) > 0 {
			err = disk.Corruptf("an entry of the log goes on behind its end")
		}
	case commandPasts:
	default:
		return c, fmt.Errorf("%w: an entry of the log of unknown kind %d", disk.ErrCorrupt, b[0])
	}
	c.body = rest
	return c, err
}

// countsIn reports whether sections count in an entry of a term, up to which this reign is the
// latest that has begun (R2). The term is asked, too: an entry that waited in Raft from one term of
// this node to the next comes before the beginning of that, without those that it rests on.
func (c *command) countsIn(term uint64, latest oplog.Reign) bool {
	return c.kind == commandSections && c.reign == latest && c.reign.Term == term
}

// Sections says where in the data of an entry of Raft's log the partitions' sections lie, as
// oplog.Options asks: nowhere if it has none, or none that count (R2); and whether a leader begins with it.
func Sections(e *oplog.Entry) (from, to int, begins bool, err error) {
	if raft.LogType(e.Type) != raft.LogCommand {
		return 0, 0, false, nil
	}
	c, err := decodeCommand(e.Data)
	if err != nil || !c.countsIn(e.Term, e.Reign) {
		return 0, 0, err == nil && c.kind == commandBegin, err
	}
	return len(e.Data) - len(c.body), len(e.Data), false, nil
}
