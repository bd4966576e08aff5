package store

import (
	"encoding/base64"
	"encoding/binary"

	"github.com/cespare/xxhash/v2"

	"github.com/fbfkv/fbfkv/store/coding"
)

const followVersion = 2

// A cursor says of a partition that it has left a log, or begins as its FollowStart says, or is in one of the
// logs that the cursor names, the first of which is cursorLogs.
const (
	cursorLeft = uint64(FollowCursor)
	cursorLogs = uint64(FollowSnapshot) + 1
)

// cursor encodes how far was read, in URL-safe Base64 of: version; what the log is of, which is a cluster or
// a directory, and how many logs there are, with their names; number of partitions, and for each what is
// said of it, its last sequence and the fingerprint of its section, as far as there are any; within a
// snapshot its partition, the key of the counter told last and how many of the partition were told. All are
// varints. Then comes a checksum of all that, 4 bytes.
func (r *following) cursor() string {
	names := make(map[uint64]uint64, 1)
	var logs, partitions []byte
	for i := range r.at {
		at := &r.at[i]
		if at.begins != FollowCursor {
			partitions = binary.AppendUvarint(partitions, uint64(at.begins))
			continue
		}
		if at.log == 0 {
			partitions = appendUvarints(partitions, cursorLeft, at.seq)
			continue
		}
		name, known := names[at.log]
		if !known {
			name = cursorLogs + uint64(len(names))
			names[at.log] = name
			logs = binary.AppendUvarint(logs, at.log)
		}
		partitions = appendUvarints(partitions, name, at.seq, uint64(at.print))
	}
	b := appendUvarints([]byte{followVersion}, r.shard.Cluster, uint64(len(names)))
	b = append(appendUvarints(append(b, logs...), uint64(len(r.at))), partitions...)
	if c := r.place; c != nil {
		b = coding.AppendBytes(binary.AppendUvarint(b, uint64(c.partition)), c.key)
		b = binary.AppendUvarint(b, c.told)
	}
	b = binary.LittleEndian.AppendUint32(b, uint32(xxhash.Sum64(b)))
	return base64.RawURLEncoding.EncodeToString(b)
}

// parse is the inverse of cursor.
func (r *following) parse(cursor string) error {
	const number = binary.MaxVarintLen64
	if len(cursor) > base64.RawURLEncoding.EncodedLen(1+(6+4*len(r.at))*number+MaxKey+4) {
		return ErrCursor
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(cursor)
	if err != nil || len(b) < 1+4 {
		return ErrCursor
	}
	sum, b := binary.LittleEndian.Uint32(b[len(b)-4:]), b[:len(b)-4]
	if sum != uint32(xxhash.Sum64(b)) || b[0] != followVersion {
		return ErrCursor
	}
	rd := reader{coding.Reader{Rest: b[1:]}}
	if rd.Uvarint() != r.shard.Cluster {
		return ErrOtherLog
	}
	logs := make([]uint64, rd.UpTo(uint64(len(r.at))))
	for i := range logs {
		logs[i] = rd.Uvarint()
	}
	if rd.Uvarint() != uint64(len(r.at)) {
		return ErrOtherLog
	}
	for i := range r.at {
		at := &r.at[i]
		switch tag := rd.UpTo(cursorLogs + uint64(len(logs)) - 1); {
		case tag == cursorLeft:
			at.seq = rd.Uvarint()
		case tag < cursorLogs:
			at.begins = FollowStart(tag)
		default:
			at.log, at.seq, at.print = logs[tag-cursorLogs], rd.Uvarint(), rd.Uint32()
		}
	}
	if len(rd.Rest) > 0 {
		c := &followedPlace{int(rd.UpTo(uint64(len(r.at) - 1))), rd.Bytes(), rd.Uvarint()}
		if r.place = c; len(c.key) == 0 {
			c.key = nil
		} else if checkKey(c.key) != nil || int(Slot(c.key)>>r.s.shift) != c.partition {
			return ErrCursor
		}
		if r.at[c.partition].begins != FollowCursor {
			return ErrCursor
		}
	}
	if rd.End(); rd.err() != nil {
		return ErrCursor
	}
	return nil
}
