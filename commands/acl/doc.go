// Package acl knows users: their names and passwords, and which commands and keys they
// may use. Rules are read and shown as in Redis' ACL SETUSER and ACL LIST. The package
// has no sockets, no files and no clock.
//
//   - catalog.go: the commands that can be permitted, as package commands declares them,
//   - selector.go, rules.go, describe.go: a set of permissions, the rules that
//     change it, and its text,
//   - check.go: whether a user may run a command, asked before every one,
//   - user.go: a user, an immutable value: a change makes a new one,
//   - users.go: all users by name; a connection holds an [Account], through which a
//     change reaches it at once,
//   - file.go: the text of an ACL file, log.go: ACL LOG.
//
// Rules for channels are accepted and shown, and have no effect: publish/subscribe is
// not supported.
package acl
