package store

// Ids of other regions' operations.

// maxHeard bounds what the entry of an operation of another region takes in the log beside
// entryRoom, key and opid.
const maxHeard = 64

// regionHear takes note that another region has applied an operation.
func (x *decider) regionHear(op *Op) error { return nil }

// redoHeard remembers an operation that another region has applied.
func (p *partition) redoHeard(e *entry, seq uint64, at moment) {}

// redoRecordTakenBack marks the record of an own operation as taken back.
func (p *partition) redoRecordTakenBack(e *entry, seq uint64, at moment) {}
