package fbf

import "unsafe"

// memory is the array of lines of one segment. Large ones come from the
// system, with huge pages where it gives them (a Go heap array of 512 MB sits on
// 4 KiB pages, which costs about a third more per random access); small
// ones are Go memory, and so are all where there is no mmap.
type memory struct {
	lines  []line
	mapped []byte
}

// mapFrom is the size in bytes from which memory is mapped.
const mapFrom = 1 << 20

func newMemory(lines uint64) (memory, error) {
	if lines*lineBytes >= mapFrom {
		b, err := mapMemory(lines * lineBytes)
		if err != nil {
			return memory{}, err
		}
		if b != nil {
			return memory{mapped: b, lines: unsafe.Slice((*line)(unsafe.Pointer(&b[0])), lines)}, nil
		}
	}
	return memory{lines: alignedLines(lines)}, nil
}

// alignedLines allocates Go memory that starts on a cache line.
func alignedLines(n uint64) []line {
	words := make([]uint64, n*lanes+lanes-1)
	skip := 0
	if off := uintptr(unsafe.Pointer(&words[0])) % lineBytes; off != 0 {
		skip = int(lineBytes-off) / 8
	}
	return unsafe.Slice((*line)(unsafe.Pointer(&words[skip])), n)
}

func (m *memory) release() {
	if m.mapped != nil {
		unmapMemory(m.mapped)
	}
	m.lines, m.mapped = nil, nil
}
