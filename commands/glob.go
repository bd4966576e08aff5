package commands

import "github.com/fbfkv/fbfkv/commands/glob"

// maxPattern is the longest glob-style pattern accepted, in bytes. Matching
// costs at most the product of the pattern's and the key's length.
const maxPattern = 1024

// Match reports whether s as a whole matches a glob-style pattern under Redis'
// rules, see glob.Match.
func Match(pattern, s []byte) bool { return glob.Match(pattern, s) }
