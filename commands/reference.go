package commands

// All returns every command by name, those that are refused included. The
// declarations belong to the table and must not be changed.
func (t *Table) All() []*Command { return append([]*Command(nil), t.sorted...) }
