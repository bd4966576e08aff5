package acl

import (
	"slices"
	"strings"
)

// Command is what rules need to know of a command or subcommand.
type Command struct {
	// Name in lower case; a subcommand's is "container|name".
	Name string
	// Categories it belongs to, such as "read", without the @.
	Categories []string
	// Always permits the command to everybody, as AUTH.
	Always bool
}

// Catalog is what there is to permit. It does not change and is safe for
// concurrent use.
type Catalog struct {
	commands   []Command
	index      map[string]int
	subs       map[int][]int // of a container
	categories []string
	members    map[string][]int // of a category
}

// NewCatalog returns the catalog of these commands, which are known by their
// index from then on, and of the categories in the order in which they are
// shown. A container stands before its subcommands.
func NewCatalog(categories []string, commands []Command) *Catalog {
	c := &Catalog{
		commands:   commands,
		index:      map[string]int{},
		subs:       map[int][]int{},
		categories: categories,
		members:    map[string][]int{},
	}
	for i, cmd := range commands {
		c.index[cmd.Name] = i
		if container, _, ok := strings.Cut(cmd.Name, "|"); ok {
			parent := c.index[container]
			c.subs[parent] = append(c.subs[parent], i)
		}
		for _, category := range cmd.Categories {
			c.members[category] = append(c.members[category], i)
		}
	}
	return c
}

// Categories returns the names of all categories. The caller must not change
// them.
func (c *Catalog) Categories() []string { return c.categories }

// Members returns the names of the commands and subcommands of a category, in
// any letter case; ok is false if there is no such category.
func (c *Catalog) Members(category string) (names []string, ok bool) {
	category = strings.ToLower(category)
	for _, i := range c.members[category] {
		names = append(names, c.commands[i].Name)
	}
	return names, slices.Contains(c.categories, category)
}

// lookup returns the index of the command with this name, in any letter case.
func (c *Catalog) lookup(name string) (i int, ok bool) {
	i, ok = c.index[strings.ToLower(name)]
	return i, ok
}

// bitset is a set of commands by index.
type bitset []uint64

// newBitset returns an empty set with room for all commands.
func (c *Catalog) newBitset() bitset { return make(bitset, (len(c.commands)+63)/64) }

func (b bitset) has(i int) bool { return b[i>>6]&(1<<(i&63)) != 0 }

func (b bitset) set(i int, on bool) {
	if on {
		b[i>>6] |= 1 << (i & 63)
	} else {
		b[i>>6] &^= 1 << (i & 63)
	}
}
