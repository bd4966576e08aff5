package server

import (
	"fmt"
	"io"
	"strings"
	"testing"
)

// BenchmarkRounds measures the connection loop with a command that does nothing,
// client included: an upper bound for every other command.
func BenchmarkRounds(b *testing.B) {
	for _, depth := range []int{1, 16, 64} {
		b.Run(fmt.Sprintf("pipeline=%d", depth), func(b *testing.B) {
			s := startWith(b, Options{Logger: quiet})
			c := s.dial(b)
			request := []byte(strings.Repeat(frame("PING"), depth))
			reply := make([]byte, depth*len("+PONG\r\n"))
			b.ReportAllocs()
			for n := 0; n < b.N; n += depth {
				if _, err := c.Write(request); err != nil {
					b.Fatal(err)
				}
				if _, err := io.ReadFull(c.Conn, reply); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
