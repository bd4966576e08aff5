package acl

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"slices"
	"strings"
)

// User is what a user has and may do. It does not change and is safe for
// concurrent use.
type User struct {
	name      string
	on        bool
	nopass    bool
	sanitize  string   // a flag of Redis without a meaning here, or ""
	passwords []digest // of the passwords; any of them will do
	selectors []*selector

	everything bool // on every key every command: no need to look closer
	needsKeys  bool // a request's keys matter
}

// digest is the SHA-256 of a password.
type digest [sha256.Size]byte

// newUser returns the user that ACL SETUSER begins with: off, without
// passwords and permissions.
func newUser(c *Catalog, name string) *User {
	return &User{name: name, selectors: []*selector{newSelector(c)}, needsKeys: true}
}

// Name is the user's name.
func (u *User) Name() string { return u.name }

// On reports whether the user may log in.
func (u *User) On() bool { return u.on }

// NoPass reports whether any password will do.
func (u *User) NoPass() bool { return u.nopass }

// Passwords returns the SHA-256 of each password in hexadecimal.
func (u *User) Passwords() []string {
	list := make([]string, len(u.passwords))
	for i, p := range u.passwords {
		list[i] = hex.EncodeToString(p[:])
	}
	return list
}

// accepts reports whether the user is on and the password right. Its time does
// not tell where passwords differ.
func (u *User) accepts(password []byte) bool {
	given := digest(sha256.Sum256(password))
	found := 0
	for i := range u.passwords {
		found |= subtle.ConstantTimeCompare(given[:], u.passwords[i][:])
	}
	return u.on && (u.nopass || found == 1)
}

// with returns the user as changed by rules, or the *RuleError of the first
// that is wrong.
func (u *User) with(rules []string) (*User, error) {
	own := u.clone()
	for _, r := range rules {
		if err := own.apply(r); err != nil {
			return nil, &RuleError{r, err}
		}
	}
	own.compile()
	return own, nil
}

// clone returns an independent copy.
func (u *User) clone() *User {
	own := *u
	own.passwords = slices.Clone(u.passwords)
	own.selectors = make([]*selector, len(u.selectors))
	for i, s := range u.selectors {
		own.selectors[i] = s.clone()
	}
	return &own
}

// compile derives what is asked before every command.
func (u *User) compile() {
	u.everything = slices.ContainsFunc(u.selectors, (*selector).everything)
	u.needsKeys = slices.ContainsFunc(u.selectors, func(s *selector) bool { return !s.allKeys })
}

// userWords are the rules of a user that are single words.
var userWords = map[string]func(u *User){
	"on":                    func(u *User) { u.on = true },
	"off":                   func(u *User) { u.on = false },
	"nopass":                func(u *User) { u.nopass, u.passwords = true, nil },
	"resetpass":             func(u *User) { u.nopass, u.passwords = false, nil },
	"sanitize-payload":      func(u *User) { u.sanitize = "sanitize-payload" },
	"skip-sanitize-payload": func(u *User) { u.sanitize = "skip-sanitize-payload" },
	"clearselectors":        func(u *User) { u.selectors = u.selectors[:1] },
}

// apply changes the user by one rule; it is the user's only owner.
func (u *User) apply(rule string) error {
	word := strings.ToLower(rule)
	set := userWords[word]
	switch {
	case rule == "":
		return nil
	case set != nil:
		set(u)
		return nil
	case word == "reset":
		fresh := newUser(u.selectors[0].catalog, u.name)
		fresh.sanitize = "sanitize-payload"
		*u = *fresh
		return nil
	case strings.IndexByte("><#!", rule[0]) >= 0:
		return u.applyPassword(rule[0], rule[1:])
	case rule[0] == '(' && rule[len(rule)-1] == ')':
		return u.applySelector(rule[1 : len(rule)-1])
	}
	return u.selectors[0].apply(rule)
}

// applyPassword adds (> and #) or removes (< and !) a password or its hash.
func (u *User) applyPassword(sign byte, text string) error {
	hash := digest(sha256.Sum256([]byte(text)))
	if sign == '#' || sign == '!' {
		if len(text) != hex.EncodedLen(len(hash)) || strings.ToLower(text) != text {
			return errBadHash
		}
		if _, err := hex.Decode(hash[:], []byte(text)); err != nil {
			return errBadHash
		}
	}
	at := slices.Index(u.passwords, hash)
	switch {
	case sign == '<' || sign == '!':
		if at < 0 {
			return errNoSuchPassword
		}
		u.passwords = slices.Delete(u.passwords, at, at+1)
		return nil
	case at < 0:
		u.passwords = append(u.passwords, hash)
	}
	u.nopass = false
	return nil
}

// applySelector adds a selector.
func (u *User) applySelector(rules string) error {
	s := newSelector(u.selectors[0].catalog)
	for _, r := range strings.Fields(rules) {
		if strings.HasSuffix(r, ")") { // in a file it would close the selector
			return errSyntax
		}
		if err := s.apply(r); err != nil {
			return err
		}
	}
	u.selectors = append(u.selectors, s)
	return nil
}
