//go:build !unix

package fbf

// mapMemory has nothing to give here: the caller takes Go memory.
func mapMemory(uint64) ([]byte, error) { return nil, nil }

func unmapMemory([]byte) {}
