package resp

// SplitWords splits a line of an inline command, or of a file in redis.conf's
// syntax, into words; see splitWords for the rules. The words alias line, whose
// escapes are resolved in place. ok = false means unbalanced quotes.
func SplitWords(line []byte) (words [][]byte, ok bool) {
	spans, ok := splitWords(line, nil)
	for _, s := range spans {
		words = append(words, line[s.from:s.to:s.to])
	}
	return words, ok
}

// splitWords appends the words of an inline command to words, as offsets in
// line, by the rules of redis-cli and redis.conf (sdssplitargs in Redis):
//
//   - words are separated by white space;
//   - "…" groups, with the escapes \n \r \t \b \a \xHH and \c for any other c;
//   - '…' groups, with \' as the only escape;
//   - a closing quote ends its word, so white space or the line's end follows.
//
// Escapes are resolved in place: a word is never longer than its typed form.
// ok = false means unbalanced quotes.
func splitWords(line []byte, words []span) (all []span, ok bool) {
	i := 0
	for {
		for i < len(line) && isSpace(line[i]) {
			i++
		}
		if i == len(line) {
			return words, true
		}
		from := i
		to, next, ok := splitWord(line, i)
		if !ok {
			return words, false
		}
		words = append(words, span{uint32(from), uint32(to)})
		i = next
	}
}

// splitWord resolves the word that starts at line[i] in place. It ends before
// to; next is where to look for another.
func splitWord(line []byte, i int) (to, next int, ok bool) {
	to = i
	for i < len(line) {
		switch c := line[i]; c {
		case ' ', '\n', '\r', '\t':
			return to, i + 1, true
		case '"', '\'':
			to, i, ok = splitQuoted(line, to, i+1, c)
			if !ok || i < len(line) && !isSpace(line[i]) {
				return to, i, false
			}
			return to, i, true
		default:
			line[to] = c
			to++
			i++
		}
	}
	return to, i, true
}

// splitQuoted resolves what follows an opening quote at line[i-1] to
// line[to:…]; next is behind the closing quote.
func splitQuoted(line []byte, to, i int, quote byte) (end, next int, ok bool) {
	for i < len(line) {
		c, size := line[i], 1
		switch {
		case c == quote:
			return to, i + 1, true
		case c == '\\' && quote == '"':
			c, size = unescape(line[i:])
		case c == '\\' && i+1 < len(line) && line[i+1] == '\'':
			c, size = '\'', 2
		}
		line[to] = c
		to++
		i += size
	}
	return to, i, false
}

// unescape returns the byte that the escape at the start of b stands for, and
// the escape's length.
func unescape(b []byte) (c byte, size int) {
	if len(b) < 2 {
		return b[0], 1
	}
	switch b[1] {
	case 'n':
		return '\n', 2
	case 'r':
		return '\r', 2
	case 't':
		return '\t', 2
	case 'b':
		return '\b', 2
	case 'a':
		return '\a', 2
	case 'x':
		if len(b) >= 4 {
			high, ok1 := hexDigit(b[2])
			low, ok2 := hexDigit(b[3])
			if ok1 && ok2 {
				return high<<4 | low, 4
			}
		}
	}
	return b[1], 2
}

// hexDigit returns the value of a hexadecimal digit.
func hexDigit(c byte) (v byte, ok bool) {
	switch {
	case '0' <= c && c <= '9':
		return c - '0', true
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10, true
	case 'A' <= c && c <= 'F':
		return c - 'A' + 10, true
	}
	return 0, false
}

// isSpace is C's isspace.
func isSpace(c byte) bool {
	return c == ' ' || '\t' <= c && c <= '\r'
}
