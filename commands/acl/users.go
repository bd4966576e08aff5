package acl

import (
	"crypto/sha256"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
)

// Default is the name of the user that clients are before they log in.
const Default = "default"

// Errors of Users that are not about a rule.
var (
	ErrBadName       = errors.New("Usernames can't contain spaces or null characters")
	ErrNoName        = errors.New("Usernames can't be empty")
	ErrRemoveDefault = errors.New("The 'default' user cannot be removed")
)

// Account is a user as connections hold it: the same for as long as the user
// exists, while what the user may do changes. It is safe for concurrent use.
type Account struct {
	name string
	user atomic.Pointer[User]
	gone atomic.Bool
}

// Name is the user's name.
func (a *Account) Name() string { return a.name }

// User is the user as of now. One that was deleted may do nothing.
func (a *Account) User() *User { return a.user.Load() }

// Gone reports whether the user was deleted; a connection that still is this
// user has to be closed.
func (a *Account) Gone() bool { return a.gone.Load() }

// Users are the users by name. There is always one called default. It is safe
// for concurrent use.
type Users struct {
	catalog *Catalog
	root    *Account // default

	mu     sync.RWMutex
	byName map[string]*Account
}

// NewUsers returns the users of a server without any settings: default, who
// needs no password and may do everything.
func NewUsers(c *Catalog) *Users {
	u := &Users{catalog: c, byName: map[string]*Account{}}
	u.root = u.add(u.openUser())
	return u
}

// openUser returns the user default of a server without any settings.
func (u *Users) openUser() *User {
	open, err := newUser(u.catalog, Default).with([]string{"on", "nopass", "~*", "&*", "+@all"})
	if err != nil {
		panic("acl: " + err.Error())
	}
	return open
}

// add enters a user; u.mu is held or nobody else knows u.
func (u *Users) add(user *User) *Account {
	a := &Account{name: user.name}
	a.user.Store(user)
	u.byName[user.name] = a
	return a
}

// revoke makes an account one that may do nothing.
func (u *Users) revoke(a *Account) {
	a.user.Store(newUser(u.catalog, a.name))
	a.gone.Store(true)
}

// Catalog is what there is to permit.
func (u *Users) Catalog() *Catalog { return u.catalog }

// Default is the account of connections that have not logged in.
func (u *Users) Default() *Account { return u.root }

// LoginNeeded reports whether clients must log in before they may do anything.
func (u *Users) LoginNeeded() bool {
	d := u.root.User()
	return !d.nopass || !d.on
}

// Get returns the user with this name, or nil.
func (u *Users) Get(name string) *User {
	u.mu.RLock()
	defer u.mu.RUnlock()
	if a := u.byName[name]; a != nil {
		return a.User()
	}
	return nil
}

// Names returns the names of all users in byte order.
func (u *Users) Names() []string {
	u.mu.RLock()
	defer u.mu.RUnlock()
	return slices.Sorted(maps.Keys(u.byName))
}

// List returns all users by name.
func (u *Users) List() []*User {
	u.mu.RLock()
	defer u.mu.RUnlock()
	list := make([]*User, 0, len(u.byName))
	for _, name := range slices.Sorted(maps.Keys(u.byName)) {
		list = append(list, u.byName[name].User())
	}
	return list
}

// checkName refuses a name that is empty or has spaces: the file would not give it back as it was written.
func checkName(name string) error {
	switch {
	case name == "":
		return ErrNoName
	case hasSpaces(name):
		return ErrBadName
	}
	return nil
}

// Set creates or changes a user by rules: all of them or, with a *RuleError,
// ErrBadName or ErrNoName, none. Connections see the change at once.
func (u *Users) Set(name string, rules []string) error {
	if err := checkName(name); err != nil {
		return err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	a := u.byName[name]
	old := newUser(u.catalog, name)
	if a != nil {
		old = a.User()
	}
	changed, err := old.with(rules)
	switch {
	case err != nil:
		return err
	case a == nil:
		u.add(changed)
	default:
		a.user.Store(changed)
	}
	return nil
}

// Delete removes users and returns how many of them there were. The accounts
// of removed ones are Gone.
func (u *Users) Delete(names []string) (int, error) {
	if slices.Contains(names, Default) {
		return 0, ErrRemoveDefault
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	n := 0
	for _, name := range names {
		if a := u.byName[name]; a != nil {
			delete(u.byName, name)
			u.revoke(a)
			n++
		}
	}
	return n, nil
}

// nobody is compared with when there is no user of the name given, so that the
// time of an answer does not tell which names exist.
var nobody = &User{passwords: []digest{sha256.Sum256(nil)}}

// Authenticate returns the account of a user who is on and has the password.
func (u *Users) Authenticate(name string, password []byte) (*Account, bool) {
	u.mu.RLock()
	a := u.byName[name]
	u.mu.RUnlock()
	user := nobody
	if a != nil {
		user = a.User()
	}
	if !user.accepts(password) {
		return nil, false
	}
	return a, true
}

// SetDefaultPassword is requirepass: it makes password the only one of the
// user default; "" lets everybody in.
func (u *Users) SetDefaultPassword(password string) {
	rules := []string{"resetpass", ">" + password}
	if password == "" {
		rules = []string{"nopass"}
	}
	if err := u.Set(Default, rules); err != nil {
		panic("acl: " + err.Error()) // neither rule can be wrong
	}
}

// Replace puts other users in the place of all of these. Where a user of the
// same name is the same in every respect, or called default, the account stays;
// the others' accounts are Gone. It returns how many are.
func (u *Users) Replace(by *Users) int {
	u.mu.Lock()
	defer u.mu.Unlock()
	gone := 0
	for name, a := range u.byName {
		other := by.byName[name]
		if other != nil && (a == u.root || other.User().String() == a.User().String()) {
			a.user.Store(other.User())
			by.byName[name] = a
			continue
		}
		u.revoke(a)
		gone++
	}
	u.byName = by.byName
	return gone
}

// Define adds a user that must not exist, as the lines of files do; default
// may be defined once, from nothing. An error is a *RuleError, a
// *ParenthesisError, ErrBadName, ErrNoName or ErrDuplicate.
func (u *Users) Define(name string, words []string, defined map[string]bool) error {
	if defined[name] {
		return ErrDuplicate
	}
	if err := checkName(name); err != nil {
		return err
	}
	rules, err := MergeSelectors(words)
	if err != nil {
		return err
	}
	user, err := newUser(u.catalog, name).with(rules)
	if err != nil {
		return err
	}
	defined[name] = true
	u.mu.Lock()
	defer u.mu.Unlock()
	if a := u.byName[name]; a != nil {
		a.user.Store(user)
	} else {
		u.add(user)
	}
	return nil
}
