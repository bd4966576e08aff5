package persistence

import "encoding/binary"

// A record of the op log is what one batch commits. Its payload is a sequence of
// sections:
//
//	01 | partition u16 | sequence u64 | length u32 | what store decided
//
// Others are refused.
const (
	sectionOps = 1
	opsHeader  = 1 + 2 + 8 + 4
)

// appendOps appends a section 01.
func appendOps(dst []byte, partition uint16, seq uint64, record []byte) []byte {
	dst = append(dst, sectionOps)
	dst = binary.BigEndian.AppendUint16(dst, partition)
	dst = binary.BigEndian.AppendUint64(dst, seq)
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(record)))
	return append(dst, record...)
}

// section is one section of a record.
type section struct {
	partition uint16
	seq       uint64
	at        int // offset of content in the payload
	content   []byte
}

// parseSections calls fn for the sections of a record's payload.
func parseSections(payload []byte, fn func(section) error) error {
	for at := 0; at < len(payload); {
		rest := payload[at:]
		if rest[0] != sectionOps || len(rest) < opsHeader {
			return corruptf("a record of the op log has an unknown section %d", rest[0])
		}
		n := int(binary.BigEndian.Uint32(rest[opsHeader-4:]))
		if n > len(rest)-opsHeader {
			return corruptf("a section of the op log is longer than its record")
		}
		s := section{
			partition: binary.BigEndian.Uint16(rest[1:]), seq: binary.BigEndian.Uint64(rest[3:]),
			at: at + opsHeader, content: rest[opsHeader : opsHeader+n],
		}
		at += opsHeader + n
		if err := fn(s); err != nil {
			return err
		}
	}
	return nil
}

// noteAll notes the sections of what a batch has collected, which was encoded
// here and so parses.
func (s *segment) noteAll(payload []byte) {
	for len(payload) > 0 {
		s.note(binary.BigEndian.Uint16(payload[1:]), binary.BigEndian.Uint64(payload[3:]))
		payload = payload[opsHeader+int(binary.BigEndian.Uint32(payload[opsHeader-4:])):]
	}
}
