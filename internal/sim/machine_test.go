package sim

import (
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// silentProcess takes one connection, and does nothing.
type silentProcess struct {
	listener net.Listener
	taken    chan net.Conn
}

func (p *silentProcess) Close() error { return p.listener.Close() }

// TestDeadProcessTellsNothing checks that a process tells nobody what it writes to the disk after its
// machine's disk went on without it: another region would know what the next process has not got.
func TestDeadProcessTellsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, taken := NewWorld(1, nil), make(chan net.Conn, 1)
		m := w.Add(func(l *Life) (Process, error) {
			p := &silentProcess{l.Listen(clientPort), taken}
			go func() {
				if c, err := p.listener.Accept(); err == nil {
					taken <- c
				}
			}()
			return p, nil
		})
		for _, power := range []bool{false, true} {
			m.Start()
			soon := time.Now().Add(time.Second) // virtual
			if _, err := w.Client().dialUntil(m.Address(clientPort), soon); err != nil {
				t.Fatal(err)
			}
			c, died := <-taken, false
			m.end(m.Life(), "dies", power, func() {
				died = true
				if _, err := c.Write([]byte("applied")); err == nil {
					t.Errorf("it tells something after its death (power lost: %v)", power)
				}
			})
			if !died {
				t.Error("it does not die")
			}
		}
	})
}
