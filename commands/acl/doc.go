// Package acl knows users: who they are, what proves it, and which commands
// and keys they may use. Rules are written, and shown again, as in Redis'
// ACL SETUSER and ACL LIST. The package has no sockets, no files and no clock.
//
//   - catalog.go: what there is to permit, as package commands declares it,
//   - selector.go, rules.go, describe.go: a set of permissions, the rules that
//     change it, and its text,
//   - check.go: whether a user may run a command, asked before every one,
//   - user.go: a user, which is an immutable value: a change makes another,
//   - users.go: the users there are by name; a live connection holds an
//     [Account], through which a change reaches it at once,
//   - file.go: the text of an ACL file, log.go: ACL LOG.
//
// What a rule says of channels is kept and shown, and applies to nothing:
// there is no publish/subscribe.
package acl
