//go:build unix && !linux

package fbf

// adviseHuge does nothing: this system chooses page sizes by itself.
func adviseHuge([]byte) {}
