package integration

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// terminal is a terminal with a program on it.
type terminal struct {
	t      *testing.T
	master *os.File
	cmd    *exec.Cmd
	shown  *logBuffer
	done   chan struct{}
}

// startOnTerminal starts the program on a new terminal of a size.
func startOnTerminal(t *testing.T, columns, rows int, args ...string) *terminal {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { master.Close() })
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile(fmt.Sprint("/dev/pts/", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer slave.Close()
	term := &terminal{t: t, master: master, cmd: exec.Command(program, args...), shown: newLogBuffer(),
		done: make(chan struct{})}
	term.resize(columns, rows)
	term.cmd.Stdin, term.cmd.Stdout, term.cmd.Stderr = slave, slave, slave
	term.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := term.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		for b := make([]byte, 4096); ; {
			n, err := master.Read(b)
			term.shown.Write(b[:n])
			if err != nil { // the program has ended
				break
			}
		}
		term.cmd.Wait()
		close(term.done)
	}()
	t.Cleanup(func() {
		term.cmd.Process.Kill()
		<-term.done
	})
	return term
}

func (term *terminal) resize(columns, rows int) {
	term.t.Helper()
	if err := unix.IoctlSetWinsize(int(term.master.Fd()), unix.TIOCSWINSZ,
		&unix.Winsize{Row: uint16(rows), Col: uint16(columns)}); err != nil {
		term.t.Fatal(err)
	}
}

// screen is the text that was drawn last.
func (term *terminal) screen() string {
	frames := strings.Split(term.shown.String(), "\x1b[H")
	if len(frames) < 3 {
		return "" // none is whole yet
	}
	return orders.ReplaceAllString(frames[len(frames)-2], "")
}

// orders are what a terminal is told beside text.
var orders = regexp.MustCompile(`\x1b\[[0-9?]*[A-Za-z]`)

// awaitScreen waits for a screen that matches.
func (term *terminal) awaitScreen(want string) {
	term.t.Helper()
	match := regexp.MustCompile(want)
	eventually(term.t, patience, "the screen shows "+want, func() bool {
		return match.MatchString(term.screen())
	})
}

// expectEnd expects that the program ends well and gives the terminal back.
func (term *terminal) expectEnd() {
	term.t.Helper()
	<-term.done
	shown := term.shown.String()
	if code := term.cmd.ProcessState.ExitCode(); code != 0 ||
		!strings.HasSuffix(shown, "\x1b[?7h\x1b[?25h\x1b[?1049l") {
		term.t.Errorf("it ends with status %d and %q", code, tail(shown, 100))
	}
}

// TestTop watches a server on a terminal: duplicates move the numbers, a terminal of
// another size is filled, a server that is silent or gone is waited for, and keys and
// signals end it.
func TestTop(t *testing.T) {
	t.Parallel()
	address := freeAddress(t)
	_, port, _ := strings.Cut(address, ":")
	s := startServer(t, "--port", port, "--requirepass", "open sesame")
	top := []string{"top", "--interval", "100ms", "--requirepass", "open sesame", address}
	term := startOnTerminal(t, 120, 40, top...)
	term.awaitScreen(`^127\.0\.0\.1:\d+: ready .*\s+operations +0/s applied, 0/s duplicates`)
	c := s.dial()
	c.do("AUTH", "open sesame")
	for range 30 {
		c.do("CINCRBY", "page:home", "op-1", "1")
	}
	term.awaitScreen(`in all +1 applied, 29 duplicates absorbed`)
	term.awaitScreen(`TABLE .*\s+default .*exact`)

	term.resize(50, 9)
	eventually(t, patience, "the screen is small", func() bool {
		lines := strings.Split(term.screen(), "\r\n")
		for _, line := range lines {
			if utf8.RuneCountInString(line) > 50 {
				return false
			}
		}
		return len(lines) == 9
	})
	term.resize(120, 40)

	s.cmd.Process.Signal(syscall.SIGSTOP)
	term.awaitScreen(`NO ANSWER: the server is silent`)
	s.cmd.Process.Signal(syscall.SIGCONT)
	term.awaitScreen(`: ready `)
	s.kill()
	term.awaitScreen(`NO ANSWER: (connect: connection refused|the connection was closed)`)
	s.start()
	term.awaitScreen(`: ready .*\s+operations +\d`)
	term.master.WriteString("\x03") // Ctrl-C
	term.expectEnd()

	for _, end := range []func(*terminal){
		func(term *terminal) { term.master.WriteString("xq") },
		func(term *terminal) { term.cmd.Process.Signal(syscall.SIGTERM) },
	} {
		term := startOnTerminal(t, 0, 0, top...) // one that does not know its size
		term.awaitScreen(`: ready `)
		end(term)
		term.expectEnd()
	}

	// Without a terminal it prints once; what cannot be asked at all is an error.
	out, code := fbfkv(t, top...)
	if code != 0 || !strings.Contains(out, "0/s applied, 0/s duplicates") || strings.Contains(out, "\x1b") {
		t.Errorf("without a terminal: %d %q", code, out)
	}
	if out, code := fbfkv(t, "top", address); code != 1 || !strings.Contains(out, "NOAUTH") {
		t.Errorf("without the password: %d %s", code, out)
	}
	s.stop()
	if out, code := fbfkv(t, top...); code != 1 || !strings.Contains(out, "connection refused") {
		t.Errorf("without a server: %d %s", code, out)
	}
}
