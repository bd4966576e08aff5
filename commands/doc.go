// Package commands is everything a client can ask: one declaration per
// command, parsing into operations, and the encoding of their outcomes.
//
// # The table
//
// [Commands] is built from slices of [Command], one file per family
// (counters.go, tables.go, filters.go, strings.go, …). A declaration holds a
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
// A [Pipeline] turns what one connection sent together into operations; a
// [Round] makes those of one or several connections one store.Batch. Parse sees arguments and no state; Reply sees an outcome and no arguments. A
// request that is refused takes its place in the order of replies without
// splitting the batch; so do the commands of a transaction, and EXEC asks for the
// batch to be atomic. Commands that are no operation on keys (INFO, CONFIG, SCAN, …)
// have Run: what came before them is executed and answered first.
//
// To add a command, declare it in its family's slice. A keyed one needs Parse,
// which fills a store.Op, and Reply; most replies exist already.
//
// # The other files
//
//   - parse.go reads integers and options, errors.go words every error reply,
//   - session.go and server.go are the seam to package server,
//   - permission.go asks package acl whether a client may do what it asks,
//     login.go lets clients in and slows down those who guess, redact.go says
//     how a request may be shown,
//   - transaction.go is MULTI,
//   - stats.go and histogram.go are what is counted of each command, observe.go
//     is what watches batches (slowlog.go, latency.go, monitor.go),
//   - introspect.go and arg.go are COMMAND's view of a declaration.
package commands
