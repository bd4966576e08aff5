// Command bench is a load generator for fbfkv and for any other server of the Redis
// protocol. bench compare measures two servers in turn; bench table measures this
// project's goals (rows.go) beside a redis-server.
//
// It shares its machine with the server it measures, so it must be cheap. A connection's whole pipeline
// is one buffer of requests that was encoded before the run; an operation only patches the digits of its
// key and its id into place. A pipeline is written with one system call, and its replies are counted by
// scanning. Nothing is allocated per operation.
//
//	workload   what a request looks like          (workload.go, frame.go)
//	stream     which key and id comes next        (stream.go, keys.go, opid.go)
//	conn       one connection's pipeline          (conn.go, reply.go)
//	worker     all connections                    (worker.go, again.go)
//	loop       one thread with epoll              (epoll_linux.go)
//	recorder   latencies, in total and over time  (record.go)
//	verify     counters against acknowledgements  (verify.go)
//
// The latency of an operation runs from the moment at which it was handed to the system to
// the moment at which its reply was read; with a rate (an open loop), from the moment at which it was
// due, so that a server that stalls is charged for every operation that it kept waiting.
package main
