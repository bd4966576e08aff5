// Package glob matches Redis' glob-style patterns.
package glob

// Match reports whether s as a whole matches a glob-style pattern under Redis'
// rules: ? is any byte, * any bytes, [a-c] one of a class and [^a-c] one
// outside it, and a backslash takes away a byte's special meaning. A class
// without its closing bracket ends with the pattern.
//
// Every part of a pattern but * matches exactly one byte, so only the last *
// met ever needs to be tried again: the time is at most len(pattern)*len(s).
func Match[P, S string | []byte](pattern P, s S) bool {
	p, i := 0, 0
	star, retry := -1, 0 // where the last * was, and where its rest is tried next
	for i < len(s) {
		if p < len(pattern) {
			if pattern[p] == '*' {
				star, retry = p, i
				p++
				continue
			}
			if next, ok := matchByte(pattern, p, s[i]); ok {
				p, i = next, i+1
				continue
			}
		}
		if star < 0 {
			return false
		}
		retry++
		p, i = star+1, retry
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}

// matchByte matches c against the part of the pattern at p, which is not *,
// and returns where the next part starts.
func matchByte[P string | []byte](pattern P, p int, c byte) (next int, ok bool) {
	switch pattern[p] {
	case '?':
		return p + 1, true
	case '[':
		return matchClass(pattern, p+1, c)
	case '\\':
		if p+1 < len(pattern) {
			p++
		}
	}
	return p + 1, pattern[p] == c
}

// matchClass matches c against the class whose first byte after the bracket is
// at p, and returns where the class ends.
func matchClass[P string | []byte](pattern P, p int, c byte) (next int, ok bool) {
	negated := p < len(pattern) && pattern[p] == '^'
	if negated {
		p++
	}
	found := false
	for ; p < len(pattern) && pattern[p] != ']'; p++ {
		switch {
		case pattern[p] == '\\' && p+1 < len(pattern):
			p++
			found = found || pattern[p] == c
		case p+2 < len(pattern) && pattern[p+1] == '-':
			lo, hi := min(pattern[p], pattern[p+2]), max(pattern[p], pattern[p+2])
			found = found || lo <= c && c <= hi
			p += 2
		default:
			found = found || pattern[p] == c
		}
	}
	return min(p+1, len(pattern)), found != negated
}
