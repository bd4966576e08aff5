// Package longlock has a mutex that its holder may keep while it waits for a disk or for other nodes.
package longlock

import "sync"

// Mutex is a mutex made of a channel. In a test on virtual time a goroutine that waits for it lets
// the time go on, for which the holder waits; one that waits for a sync.Mutex would stop the clock.
// The zero value is unlocked.
type Mutex struct {
	once sync.Once
	held chan struct{} // has room for one
}

func (m *Mutex) channel() chan struct{} {
	m.once.Do(func() { m.held = make(chan struct{}, 1) })
	return m.held
}

// Lock implements sync.Locker.
func (m *Mutex) Lock() { m.channel() <- struct{}{} }

// Unlock implements sync.Locker.
func (m *Mutex) Unlock() { <-m.channel() }

// TryLock locks the mutex, unless it is locked. It reports whether it did.
func (m *Mutex) TryLock() bool {
	select {
	case m.channel() <- struct{}{}:
		return true
	default:
		return false
	}
}
