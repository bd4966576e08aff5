// Package resp reads and writes RESP, the Redis serialization protocol, in its
// versions 2 and 3.
//
// A client's request is a frame: an array of bulk strings,
//
//	*3\r\n$7\r\nCINCRBY\r\n$1\r\nk\r\n$4\r\nid-1\r\n …
//
// or an inline command, as a person types it: one line of words, with quotes as in
// redis-cli. Reader takes frames from a byte stream one
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
// Fill reads once; Next only looks at what has been read. So the caller handles
// everything that a client has pipelined between two calls of Fill, and all arguments
// stay valid, without a copy, until the next Fill.
//
// The Reader does not trust a client. It compares every length with Limits before it
// allocates, its memory grows with the bytes that arrived and not with announced lengths, and
// it parses no byte twice.
//
// Writer appends replies to a buffer, which its owner writes at once. redcon encodes
// RESP2's types; no other package uses redcon.
package resp
