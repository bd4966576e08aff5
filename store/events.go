package store

import "time"

// The events that OnEvent tells of.
const (
	EventCommit     = "commit"       // a batch waited until it was committed
	EventCheckpoint = "checkpoint"   // a partition's changes were brought to their rows and filters
	EventSnapshot   = "snapshot"     // SAVE or BGSAVE: a checkpoint of all partitions
	EventExpiry     = "expire-cycle" // keys whose time had come were removed
)

// OnEvent makes the store call fn after each event with how long it took, in the
// goroutine in which it happened: fn must be quick and safe for concurrent use.
func (s *Store) OnEvent(fn func(event string, took time.Duration)) { s.onEvent.Store(&fn) }

// eventBegins returns what eventEnds needs.
func (s *Store) eventBegins() time.Time {
	if s.onEvent.Load() == nil {
		return time.Time{}
	}
	return time.Now()
}

// eventEnds tells of an event.
func (s *Store) eventEnds(event string, began time.Time) {
	if fn := s.onEvent.Load(); fn != nil && !began.IsZero() {
		(*fn)(event, time.Since(began))
	}
}
