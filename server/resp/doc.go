// Package resp reads and writes RESP, the Redis serialization protocol, in its
// versions 2 and 3.
//
// A client's request is a frame: an array of bulk strings,
//
//	*3\r\n$7\r\nCINCRBY\r\n$1\r\nk\r\n$4\r\nid-1\r\n …
//
// or, typed by a person, an inline command: one line of words, in which quotes
// group and escape as in redis-cli. Reader takes frames from a byte stream one
// by one:
//
//	r := resp.NewReader(conn, resp.DefaultLimits)
//	for {
//		if _, err := r.Fill(); err != nil {
//			return err
//		}
//		for {
//			args, ok, err := r.Next()
//			if err != nil {
//				return err // *ProtocolError: tell the client and close
//			}
//			if !ok {
//				break // the rest of the frame has yet to arrive
//			}
//			handle(args)
//		}
//	}
//
// Fill reads once, Next only looks at what is there, so everything that a
// client has pipelined is handled between two calls of Fill, and the arguments
// of all of it stay valid, uncopied, until the next Fill.
//
// A client is not trusted: every length is compared with Limits before a byte
// is allocated for it, memory grows with what has really arrived and never with
// what was announced, and no byte is parsed twice.
//
// Writer appends replies to a buffer that its owner writes out in one piece. The
// encoding of RESP2's types is redcon's; this package is the only one that knows
// redcon.
package resp
