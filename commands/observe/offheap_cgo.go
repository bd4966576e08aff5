//go:build cgo

package observe

// storageOffHeap: with cgo the storage engine keeps its cache and its memtables
// beside the Go heap.
const storageOffHeap = true
