// Package commands is everything a client can ask: one declaration per
// command, parsing into operations, and the encoding of their outcomes.
//
// # The table
//
// [Commands] is built from slices of [Command], one file per family
// (counters.go, ctable.go, filters.go, strings.go, …). A declaration holds a
// command's name, arity, flags, key positions and documentation beside the
// functions that carry it out. Dispatch, arity errors, MULTI, authentication,
// COMMAND with its subcommands and every HELP derive from the table; there is
// no other list of names.
//
// # The path of a request
//
//	args → Pipeline.Add: look up → arity → authenticated? → in MULTI? → Parse ─┐ store.Op joins
//	                                                                           │ the Round's
//	replies ← Pipeline.Answer: Reply per outcome ◄── Round.Execute ◄───────────┘ batch
//
// A [Pipeline] turns what one connection has sent into operations. A [Round] puts those
// of one or several connections into one store.Batch. Parse sees arguments and no state;
// Reply sees an outcome and no arguments. A refused request keeps its place in the order
// of replies and does not split the batch. Neither do the commands of a transaction; EXEC
// makes the batch atomic. Commands that are not operations on keys (INFO, CONFIG, SCAN,
// …) have Run: the server first executes and answers what came before them.
//
// To add a command, declare it in its family's slice. A keyed one needs Parse,
// which fills a store.Op, and Reply; most replies exist already.
//
// # The other files
//
//   - command.go is a declaration and its arguments, table.go the set of them,
//     introspect.go how COMMAND and HELP show it,
//   - parse.go reads integers, units and options, errors.go has the text of every error
//     reply,
//   - round.go and pipeline.go are the path above, transaction.go is MULTI and WATCH,
//   - session.go is what a connection is, its commands and its logins, server.go what
//     commands need of package server,
//   - cluster.go is what commands know of a cluster, clusterroute.go decides which node carries a
//     request out, clustercommands.go shows the cluster to clients, and clusterrole.go the
//     node's part in it,
//   - acl.go asks package acl whether a client may run a command, redact.go hides
//     passwords in what is shown and logged of a request,
//   - observe.go tells package observe what was carried out and shows what it knows
//     (INFO, SLOWLOG, LATENCY, MONITOR, MEMORY),
//   - hotkeyscommands.go tells package hotkeys the same, for HOTKEYS, and clienttracking.go makes
//     clients those that package tracking tells of changed keys.
package commands
