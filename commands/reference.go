package commands

import "slices"

// All returns every command by name, those that are refused included. The
// declarations belong to the table and must not be changed.
func (t *Table) All() []*Command { return slices.Clone(t.sorted) }

// Categories returns the command's ACL categories, such as "@write": those it
// declares and those that follow from its flags.
func (c *Command) Categories() []string { return c.categories() }
