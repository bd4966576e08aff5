package server

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Faults are all that is wrong with a configuration, each one line.
type Faults []string

// Error returns the faults, a line each.
func (f Faults) Error() string { return strings.Join(f, "\n") }

// ReadConfigFile reads a configuration file into c. Its syntax is redis.conf's:
// one setting per line, its name and the words of its value separated by white
// space, words with white space quoted, lines that begin with # ignored.
//
//	# fbfkv.conf
//	bind 127.0.0.1 ::1
//	requirepass "correct horse"
//	save 300 1
//	save 60 10000
//	include /etc/fbfkv.conf.d/*.conf
//
// Of several lines with one setting the last counts; those of a Repeatable one
// add up. Included files are read where their line stands; a relative path is
// relative to the directory that the server is started in, and a pattern that
// nothing matches includes nothing. Directives lists the settings that only Redis
// has.
//
// An error is of type Faults: it names the file and line of each. c is then what
// the other lines say.
func ReadConfigFile(path string, c *Config) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) && !strings.ContainsAny(path, "./") {
		return Faults{fmt.Sprintf("%q is neither a subcommand nor a configuration file (fbfkv --help)", path)}
	}
	if err != nil {
		return Faults{fmt.Sprintf("configuration file: %v", err)}
	}
	defer f.Close()
	return readConfig(f, path, c)
}

// The bounds of a configuration.
const (
	maxConfigLine = 64 << 10 // bytes
	maxIncludes   = 256      // files, those counted again that are included again
	maxFaults     = 100      // that are told
)

// byteOrderMark is what editors of Windows begin a file with.
const byteOrderMark = "\ufeff"

// readConfig is ReadConfigFile for an open file; name is for errors.
func readConfig(r io.Reader, name string, c *Config) error {
	reader := configReader{config: c, words: map[*Setting][]string{}, from: map[*Setting]place{}}
	reader.read(r, name)
	if reader.faults == nil {
		return nil
	}
	return reader.faults
}

// configReader reads a configuration file and those that it includes.
type configReader struct {
	config   *Config
	faults   Faults
	words    map[*Setting][]string // so far
	from     map[*Setting]place    // where a setting was set last
	open     []string              // absolute paths of the files being read, from the outermost
	included int                   // files, so far
}

// place is a line of a file.
type place struct {
	file string
	line int
}

// fault notes what is wrong with a line.
func (r *configReader) fault(at place, err error) {
	if len(r.faults) > maxFaults {
		return
	}
	text := strings.Join(strings.Fields(err.Error()), " ")
	r.faults = append(r.faults, fmt.Sprintf("%s:%d: %s", at.file, at.line, text))
	if len(r.faults) == maxFaults {
		r.faults = append(r.faults, fmt.Sprintf("%s:%d: too many faults: the rest of the file was not read",
			at.file, at.line))
	}
}

// read reads one file.
func (r *configReader) read(f io.Reader, name string) {
	r.open = append(r.open, absolute(name))
	defer func() { r.open = r.open[:len(r.open)-1] }()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, maxConfigLine)
	at := place{file: name, line: 1}
	for ; len(r.faults) <= maxFaults && lines.Scan(); at.line++ {
		line := lines.Text()
		if at.line == 1 {
			line = strings.TrimPrefix(line, byteOrderMark)
		}
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		if err := r.line(line, at); err != nil {
			r.fault(at, err)
		}
	}
	switch err := lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		r.fault(at, fmt.Errorf("the line is longer than %d bytes; the rest of the file was not read",
			maxConfigLine))
	case err != nil:
		r.fault(at, err)
	}
}

// line reads one line.
func (r *configReader) line(line string, at place) error {
	words, ok := splitWords(line)
	if !ok {
		return errors.New("unbalanced quotes")
	}
	name, words := words[0], words[1:]
	s, d := LookUp(name), foreign(name)
	include := strings.EqualFold(name, "include")
	switch {
	case s == nil && d == nil && !include:
		return fmt.Errorf("unknown setting %.100q%s", name, similar(name))
	case len(words) == 0:
		return fmt.Errorf("%s: a value is missing", strings.ToLower(name))
	case include:
		return r.include(words, at)
	case s != nil:
		return r.set(s, words, at)
	case !d.accepts(words):
		return fmt.Errorf("%s: %s", strings.ToLower(name), d.Reason)
	}
	r.config.noEffect(strings.ToLower(name))
	return nil
}

// set gives a setting its value, or adds words to it.
func (r *configReader) set(s *Setting, words []string, at place) error {
	before, again := r.from[s]
	r.from[s] = at
	switch {
	case s.Lines: // this line alone is the value
	case again && !s.Repeatable && before.file == at.file:
		r.config.noEffect(fmt.Sprintf("%s (%s:%d, set again below)", s.Name, before.file, before.line))
	case again && s.Repeatable && (len(words) > 1 || words[0] != ""): // a lone "" starts afresh, as in Redis
		if earlier := r.words[s]; len(earlier) != 1 || earlier[0] != "" {
			words = append(slices.Clip(earlier), words...)
		}
	}
	if err := s.kind.parse(r.config, words); err != nil {
		return fmt.Errorf("%s: %w", s.Name, err)
	}
	r.words[s] = words
	return nil
}

// include reads the files that an include names.
func (r *configReader) include(words []string, at place) error {
	if len(words) != 1 {
		return fmt.Errorf("include: %w", errOneWord)
	}
	paths, err := includedPaths(words[0])
	if err != nil {
		return fmt.Errorf("include: %w", err)
	}
	for _, path := range paths {
		r.included++
		switch {
		case slices.Contains(r.open, absolute(path)):
			return fmt.Errorf("include: %s includes itself", path)
		case r.included > maxIncludes:
			return fmt.Errorf("include: more than %d files", maxIncludes)
		}
		f, err := os.Open(path)
		if err != nil {
			r.fault(at, fmt.Errorf("include: %w", err))
			continue
		}
		r.read(f, path)
		f.Close()
	}
	return nil
}

// absolute returns the absolute path of a file, which may have others if there are
// links.
func absolute(path string) string {
	if absolute, err := filepath.Abs(path); err == nil {
		return absolute
	}
	return path
}

// includedPaths returns the files that a path or pattern of include means, in
// alphabetical order. As in Redis, names that begin with a dot do not match.
func includedPaths(pattern string) ([]string, error) {
	if !strings.ContainsAny(pattern, "*?[") {
		return []string{pattern}, nil
	}
	pattern = filepath.Clean(strings.ReplaceAll(pattern, "[!", "[^"))
	paths, err := filepath.Glob(pattern)
	if err != nil {
		return nil, err
	}
	asked := strings.Split(pattern, "/")
	return slices.DeleteFunc(paths, func(path string) bool {
		for i, name := range strings.Split(path, "/") {
			if strings.HasPrefix(name, ".") && !strings.HasPrefix(asked[i], ".") {
				return true
			}
		}
		return false
	}), nil
}

// noEffect notes something that the configuration says and that has no effect.
func (c *Config) noEffect(what string) {
	if !slices.Contains(c.NoEffect, what) {
		c.NoEffect = append(slices.Clip(c.NoEffect), what)
	}
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

// rewriteMark stands above the lines that CONFIG REWRITE adds to a file.
const rewriteMark = "# Generated by CONFIG REWRITE"

// RewriteConfigFile makes the configuration file at path say what c says, so that
// the next start has the same settings. Comments, order and the lines of settings
// that did not change stay as they are; a setting that the file does not mention
// is added unless it has its default or an included file says it. Included files
// are not touched. The file is replaced as a whole or not at all.
func RewriteConfigFile(path string, c *Config) error {
	old, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	text, err := rewritten(string(old), path, c)
	if err != nil {
		return err
	}
	return replaceFile(path, []byte(text))
}

// readText reads the text of the configuration file at path.
func readText(text, path string) (*Config, error) {
	c := DefaultConfig()
	return c, readConfig(strings.NewReader(text), path, c)
}

// rewritten returns the text of a file that says what c says, from that of the
// file at path.
func rewritten(old, path string, c *Config) (string, error) {
	old = strings.TrimPrefix(old, byteOrderMark)
	said, err := readText(old, path)
	if err != nil {
		return "", err
	}
	own := withoutIncludedUsers(old, said, c)
	var b strings.Builder
	written := map[*Setting]bool{}
	marked := false
	for line := range strings.Lines(old) {
		s := settingOf(line)
		marked = marked || strings.TrimSpace(line) == rewriteMark
		switch {
		case s != nil && s.Name == "user" && s.Format(said) == s.Format(c):
			writeLine(&b, hashed(s, line))
		case s == nil || s.Format(said) == s.Format(c):
			b.WriteString(strings.TrimSuffix(line, "\n") + "\n")
		case !written[s]: // the first of a repeatable setting's lines takes all
			writeLine(&b, s.Line(own))
			written[s] = true
		}
	}
	if said, err = readText(b.String(), path); err != nil {
		return "", err
	}
	for _, s := range differing(said, c) { // nothing says it, or an include below its line says otherwise
		if s.Lines && written[s] {
			continue // an included file says otherwise
		}
		if !marked {
			b.WriteString(rewriteMark + "\n")
			marked = true
		}
		writeLine(&b, s.Line(own))
	}
	if said, err = readText(b.String(), path); err != nil {
		return "", err
	}
	for _, s := range differing(said, c) {
		return "", fmt.Errorf("an included file sets %s too, and its lines add up: change it there", s.Name)
	}
	return b.String(), nil
}

// withoutIncludedUsers returns c without those users that said, which is what the
// text of a file and those that it includes say, has of included files.
func withoutIncludedUsers(text string, said, c *Config) *Config {
	included := map[string]bool{}
	for _, u := range said.Users {
		included[u.Name] = true
	}
	for line := range strings.Lines(text) {
		if s := settingOf(line); s != nil && s.Name == "user" {
			words, _ := splitWords(strings.TrimSpace(line))
			delete(included, words[1])
		}
	}
	own := *c
	own.Users = slices.DeleteFunc(slices.Clone(c.Users), func(u UserLine) bool { return included[u.Name] })
	return &own
}

// differing returns the settings that two configurations do not agree on.
func differing(a, b *Config) (settings []*Setting) {
	for i := range Settings {
		if s := &Settings[i]; s.Format(a) != s.Format(b) {
			settings = append(settings, s)
		}
	}
	return settings
}

// hashed returns a valid line of the setting user with the hashes of its passwords.
func hashed(user *Setting, line string) string {
	words, _ := splitWords(strings.TrimSpace(line))
	alone := new(Config)
	if err := user.kind.parse(alone, words[1:]); err != nil {
		panic("server: " + err.Error()) // it was read with the file
	}
	return user.Line(alone)
}

// writeLine writes a line, or several, but not an empty one.
func writeLine(b *strings.Builder, line string) {
	if line != "" {
		b.WriteString(line + "\n")
	}
}

// settingOf returns the setting that a line of a valid file sets, or nil if it has
// no effect.
func settingOf(line string) *Setting {
	line = strings.TrimSpace(line)
	if line == "" || line[0] == '#' {
		return nil
	}
	words, _ := splitWords(line)
	s := LookUp(words[0])
	if s != nil && s.Name == "client-output-buffer-limit" &&
		!strings.Contains(strings.ToLower(line), "normal") {
		return nil // limits of other classes
	}
	return s
}

// replaceFile puts a new file in the place of the one at path, with the same
// permissions; after a power failure it is one of the two.
func replaceFile(path string, data []byte) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, filepath.Base(path)+".*.tmp")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // in vain once it was renamed
	if err := writeAndSync(f, data, info.Mode()); err != nil {
		return fmt.Errorf("writing %s: %w", f.Name(), err)
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// writeAndSync fills and closes a file.
func writeAndSync(f *os.File, data []byte, mode os.FileMode) error {
	defer f.Close()
	if err := f.Chmod(mode.Perm()); err != nil {
		return err
	}
	if _, err := f.Write(data); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	return f.Close()
}
