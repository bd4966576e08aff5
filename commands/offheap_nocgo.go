//go:build !cgo

package commands

// storageOffHeap: without cgo the Go heap holds the storage engine's memory too.
const storageOffHeap = false
