package acl

import "strings"

// commandRules describes the commands, as in "-@all +get". The rules are those
// that were given, in their order, but for those that others made void.
func (s *selector) commandRules() string {
	words := []string{"-@all"}
	if s.fromAll {
		words[0] = "+@all"
	}
	return strings.Join(append(words, s.rules...), " ")
}

// keyRules describes the keys, as in "~a* %R~b".
func (s *selector) keyRules() string {
	if s.allKeys {
		return "~*"
	}
	words := make([]string, len(s.keys))
	for i, k := range s.keys {
		words[i] = map[Access]string{Read: "%R~", Write: "%W~", readWrite: "~"}[k.access] + k.pattern
	}
	return strings.Join(words, " ")
}

// channelRules describes the channels, as in "&a* &b".
func (s *selector) channelRules() string {
	if s.allChannels {
		return "&*"
	}
	words := make([]string, len(s.channels))
	for i, c := range s.channels {
		words[i] = "&" + c
	}
	return strings.Join(words, " ")
}

// String describes the selector as ACL LIST does.
func (s *selector) String() string {
	var words []string
	if keys := s.keyRules(); keys != "" {
		words = append(words, keys)
	}
	if !s.allChannels {
		words = append(words, "resetchannels")
	}
	if channels := s.channelRules(); channels != "" {
		words = append(words, channels)
	}
	return strings.Join(append(words, s.commandRules()), " ")
}

// Permissions are one selector's rules, as ACL GETUSER shows them.
type Permissions struct{ Commands, Keys, Channels string }

// Selectors returns the user's permissions: the root ones first.
func (u *User) Selectors() []Permissions {
	list := make([]Permissions, len(u.selectors))
	for i, s := range u.selectors {
		list[i] = Permissions{s.commandRules(), s.keyRules(), s.channelRules()}
	}
	return list
}

// Flags returns the user's flags, as ACL GETUSER shows them.
func (u *User) Flags() []string {
	flags := []string{"off"}
	if u.on {
		flags[0] = "on"
	}
	if u.nopass {
		flags = append(flags, "nopass")
	}
	if u.sanitize != "" {
		flags = append(flags, u.sanitize)
	}
	return flags
}

// Rules describes the user by rules that make the same user of a new one, as
// ACL LIST does.
func (u *User) Rules() []string {
	rules := u.Flags()
	for _, p := range u.Passwords() {
		rules = append(rules, "#"+p)
	}
	rules = append(rules, u.selectors[0].String())
	for _, s := range u.selectors[1:] {
		rules = append(rules, "("+s.String()+")")
	}
	return rules
}

// String is the user's line in ACL LIST and in an ACL file.
func (u *User) String() string { return "user " + u.name + " " + strings.Join(u.Rules(), " ") }
