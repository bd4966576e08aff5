package acl

import "github.com/fbfkv/fbfkv/commands/glob"

// Reason is why something is denied.
type Reason uint8

// The reasons, in the order in which one is preferred to report.
const (
	Allowed       Reason = iota
	DeniedCommand        // the command, or this subcommand
	DeniedKey            // a key among the arguments
	DeniedAuth           // the password

	Reasons = iota // how many there are
)

// String is the reason as ACL LOG shows it.
func (r Reason) String() string { return [...]string{"ok", "command", "key", "auth"}[r] }

// KeyRef is a key among the arguments of a request.
type KeyRef struct {
	Pos    int
	Access Access
}

// Everything reports whether the user may run every command on every key; then
// there is nothing to check.
func (u *User) Everything() bool { return u.everything }

// MayRead reports whether the user may read a key, with some command.
func (u *User) MayRead(key []byte) bool {
	if u.everything {
		return true
	}
	for _, s := range u.selectors {
		if s.allKeys || s.allowsKey(key, Read) {
			return true
		}
	}
	return false
}

// MayOnly reports whether the user may run the command of that name, with some argument if not with
// all, and no other but those that everybody may run and those that are harmless.
func (u *User) MayOnly(name string, harmless func(Command) bool) bool {
	may := false
	for _, s := range u.selectors {
		for i, c := range s.catalog.commands {
			if !s.commands.has(i) && len(s.firstArgs[i]) == 0 {
				continue
			}
			if c.Name == name {
				may = true
			} else if !c.Always && !harmless(c) {
				return false
			}
		}
	}
	return may
}

// NeedsKeys reports whether Check looks at the keys of a request.
func (u *User) NeedsKeys() bool { return u.needsKeys }

// Check decides whether the user may run a command, given by its index in the
// catalog, with these arguments, the command's name first, of which some are
// keys. If not, pos is the index of the key that is denied, or 0. It allocates
// nothing.
func (u *User) Check(command int, args [][]byte, keys []KeyRef) (reason Reason, pos int) {
	if u.everything {
		return Allowed, 0
	}
	reason = DeniedCommand
	for _, s := range u.selectors {
		r, at := s.check(command, args, keys)
		if r == Allowed {
			return Allowed, 0
		}
		if r > reason || r == reason && at > pos {
			reason, pos = r, at
		}
	}
	return reason, pos
}

// check is Check for one selector.
func (s *selector) check(command int, args [][]byte, keys []KeyRef) (Reason, int) {
	if !s.commands.has(command) && !s.catalog.commands[command].Always && !s.allowsFirstArg(command, args) {
		return DeniedCommand, 0
	}
	if s.allKeys {
		return Allowed, 0
	}
	for _, k := range keys {
		if !s.allowsKey(args[k.Pos], k.Access) {
			return DeniedKey, k.Pos
		}
	}
	return Allowed, 0
}

// allowsFirstArg reports whether a command is allowed for its first argument.
func (s *selector) allowsFirstArg(command int, args [][]byte) bool {
	if len(args) < 2 {
		return false
	}
	for _, arg := range s.firstArgs[command] {
		if equalFold(arg, args[1]) {
			return true
		}
	}
	return false
}

// equalFold compares a lower-case word with an argument in any letter case.
func equalFold(lower string, arg []byte) bool {
	if len(lower) != len(arg) {
		return false
	}
	for i, c := range arg {
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}

// allowsKey reports whether a pattern allows the access to a key.
func (s *selector) allowsKey(key []byte, access Access) bool {
	for i := range s.keys {
		k := &s.keys[i]
		if k.access&access == access && glob.Match(k.pattern, key) {
			return true
		}
	}
	return false
}
