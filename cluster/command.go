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
//	01 | fence u64 | origin u64 | number u64 | sections    what partitions have decided
//	02 | origin u64                                        a leader begins
//	03 | pasts (witness.go)                                how far the voters have been
//
// Others are refused. Numbers are big endian.
type commandKind byte

const (
	commandSections commandKind = 1
	commandBegin    commandKind = 2
	commandPasts    commandKind = 3
)

const sectionsHeader = 1 + 8 + 8 + 8

// command is a decoded command.
type command struct {
	kind commandKind
	// fence is the term in which the leader began that decided the sections. If it is not
	// the entry's term, the sections rest on what may not have been committed, and every
	// replica ignores them (R2).
	fence uint64
	// origin is the number that the process which proposed the command drew at its start,
	// number counts the sections that it has proposed.
	origin, number uint64
	body           []byte // sections
}

func (c *command) encode(dst []byte) []byte {
	dst = append(dst, byte(c.kind))
	if c.kind == commandSections {
		dst = binary.BigEndian.AppendUint64(dst, c.fence)
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
		c.fence, c.origin, c.number = number(), number(), number()
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

// Sections says where in the data of an entry of Raft's log the partitions' sections lie, as
// oplog.Options asks: nowhere if it has none, or none that count (R2).
func Sections(e *oplog.Entry) (from, to int, err error) {
	if raft.LogType(e.Type) != raft.LogCommand {
		return 0, 0, nil
	}
	c, err := decodeCommand(e.Data)
	if err != nil || c.kind != commandSections || c.fence != e.Term {
		return 0, 0, err
	}
	return len(e.Data) - len(c.body), len(e.Data), nil
}
