package server

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
)

// ReadConfigFile reads a configuration file into c. Its syntax is redis.conf's:
// one setting per line, its name and the words of its value separated by white
// space, words with white space quoted, lines that begin with # ignored.
//
//	# fbfkv.conf
//	bind 127.0.0.1 ::1
//	requirepass "correct horse"
//	save 300 1
//	save 60 10000
//
// A setting may stand there once, a Repeatable one on several lines. An error
// names the file and line and fits on one line; c is then as it was.
func ReadConfigFile(path string, c *Config) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) && !strings.ContainsAny(path, "./") {
		return fmt.Errorf("%q is neither a subcommand nor a configuration file (fbfkv --help)", path)
	}
	if err != nil {
		return fmt.Errorf("configuration file: %w", err)
	}
	defer f.Close()
	return readConfig(f, path, c)
}

// maxConfigLine is the longest line of a configuration file, in bytes.
const maxConfigLine = 64 << 10

// readConfig is ReadConfigFile for an open file; name is for errors.
func readConfig(r io.Reader, name string, c *Config) error {
	result := *c
	seen := map[*Setting][]string{} // words so far
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxConfigLine)
	n := 0
	for lines.Scan() {
		n++
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		if err := readConfigLine(line, seen, &result); err != nil {
			return fmt.Errorf("%s:%d: %w", name, n, err)
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("%s:%d: %w", name, n+1, err)
	}
	*c = result
	return nil
}

// readConfigLine reads one line into c.
func readConfigLine(line string, seen map[*Setting][]string, c *Config) error {
	words, ok := splitWords(line)
	if !ok {
		return errors.New("unbalanced quotes")
	}
	s := LookUp(words[0])
	if s == nil {
		return fmt.Errorf("unknown setting %q", words[0])
	}
	words = words[1:]
	earlier, repeated := seen[s]
	switch {
	case repeated && !s.Repeatable && !s.Lines:
		return fmt.Errorf("%s is set twice", s.Name)
	case len(words) == 0:
		return fmt.Errorf("%s: a value is missing", s.Name)
	case s.Lines: // this line alone is the value
	case len(words) > 1 || words[0] != "": // a lone "" starts afresh, as in Redis
		words = append(earlier, words...)
		if len(earlier) == 1 && earlier[0] == "" {
			words = words[1:]
		}
	}
	seen[s] = words
	if err := s.kind.parse(c, words); err != nil {
		return fmt.Errorf("%s: %w", s.Name, err)
	}
	return nil
}

// Set gives the setting its value in c, written as on a command line or in
// CONFIG SET: one string, in which white space separates the words of a list
// and line ends the lines of a Lines setting.
func (s *Setting) Set(c *Config, value string) error {
	if !s.Lines {
		return s.kind.parse(c, s.words(value))
	}
	for line := range strings.Lines(value) {
		words, ok := splitWords(line)
		if !ok {
			return errors.New("unbalanced quotes")
		}
		if err := s.kind.parse(c, words); err != nil {
			return err
		}
	}
	return nil
}

// Line returns the setting as a line of a configuration file; a Lines setting
// as several.
func (s *Setting) Line(c *Config) string {
	if s.Lines {
		var lines []string
		for _, l := range s.kind.format(c) {
			lines = append(lines, s.Name+" "+l)
		}
		return strings.Join(lines, "\n")
	}
	line := s.Name
	words := s.kind.format(c)
	if len(words) == 0 {
		words = []string{""}
	}
	for _, w := range words {
		line += " " + quoteWord(w)
	}
	return line
}
