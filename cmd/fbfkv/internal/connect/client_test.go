package connect

import (
	"crypto/tls"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/fbfkv/fbfkv/server/tlstest"
)

// TestPortThatSpeaksTLS: a caller without --tls is told of it, by a command and by a login.
func TestPortThatSpeaksTLS(t *testing.T) {
	ca := tlstest.NewAuthority(t, "authority")
	pair, err := tls.LoadX509KeyPair(ca.Issue("server", time.Now().Add(time.Hour)))
	if err != nil {
		t.Fatal(err)
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer nc.Close()
				_ = nc.(*tls.Conn).Handshake()
			}()
		}
	}()
	for _, f := range []Flags{{}, {password: "secret"}} {
		c, err := f.Client(l.Addr().String(), time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Do(t.Context(), "PING").Text()
		if err == nil || !strings.Contains(err.Error(), "the port speaks TLS? use --tls") {
			t.Errorf("without TLS: %v", err)
		}
		if text := Explain(c.Addr(), "PING", err).Error(); !strings.Contains(text, "use --tls") {
			t.Errorf("it is explained as %s", text)
		}
		c.Close()
	}
	// A server that has answered, and goes away, is no such port.
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	go func() {
		nc, err := plain.Accept()
		if err != nil {
			return
		}
		nc.Read(make([]byte, 100))
		nc.Write([]byte("+PONG\r\n"))
		nc.Read(make([]byte, 100))
		nc.Close()
	}()
	c, err := new(Flags).Client(plain.Addr().String(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	err = c.With(t.Context(), func(conn *Conn) error {
		if text, err := conn.Do("PING").Text(); text != "PONG" {
			t.Errorf("%q, %v", text, err)
		}
		_, err := conn.Do("PING").Text()
		return err
	})
	if err == nil || strings.Contains(err.Error(), "TLS") {
		t.Errorf("a server that goes away: %v", err)
	}
}

// TestPortWithoutTLS: a caller with --tls is told that the port does not speak it.
func TestPortWithoutTLS(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		nc, err := l.Accept()
		if err != nil {
			return
		}
		defer nc.Close()
		nc.Read(make([]byte, 64<<10)) // all of it: what is left unread resets the connection
		nc.Write([]byte("-ERR Protocol error\r\n"))
	}()
	c, err := (&Flags{tls: true}).Client(l.Addr().String(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Do(t.Context(), "PING").Err(); err == nil ||
		!strings.Contains(err.Error(), "leave out --tls") {
		t.Error(err)
	}
}
