// Package integration tests fbfkv from the outside: it builds the real
// program, starts it on a free port with a data directory of its own, and
// talks to it over real sockets with go-redis, redis-cli, node-redis and, for what no
// client library would send, a raw connection.
//
// Where to look:
//
//   - server_test.go runs the program, conn_test.go is the raw connection.
//   - testdata/*.dialogue are conversations with the server, one command and
//     its exact reply at a time, in RESP2 and RESP3; dialogue_test.go holds the
//     server to them. To pin down a reply, add two lines there.
//   - load_test.go is a load whose every operation is accounted for;
//     crash_test.go kills the server under it and re-sends everything.
//   - The other files are named after their subject.
//   - imports_test.go, style_test.go and docs_test.go hold code and documents to the
//     project's rules.
//
// All tests run in parallel and use one server each. With -race the program is
// built with the race detector too, and a report of it fails the test that
// provoked it.
package integration
