//go:build !cgo

package observe

// storageOffHeap: without cgo the Go heap holds the storage engine's memory too.
const storageOffHeap = false
