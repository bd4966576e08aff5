package main

import (
	"fmt"
	"io"
	"os"
	"sync"
)

// logFile is the file that the log is appended to. Its methods are safe for
// concurrent use.
type logFile struct {
	path string

	mu sync.Mutex
	f  *os.File
}

// openLogFile opens the file, which it creates if it is missing.
func openLogFile(path string) (*logFile, error) {
	l := &logFile{path: path}
	return l, l.reopen()
}

// Write appends a message.
func (l *logFile) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.f.Write(b)
}

// reopen opens the path again, where logrotate or the like may have put another
// file. On an error the old one stays.
func (l *logFile) reopen() error {
	f, err := os.OpenFile(l.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("logfile: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.f != nil {
		l.f.Close()
	}
	l.f = f
	return nil
}

// Close closes the file.
func (l *logFile) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.f.Close()
}

// standardError is the log without a logfile.
type standardError struct{ io.Writer }

func (standardError) reopen() error { return nil }

// Close leaves standard error open.
func (standardError) Close() error { return nil }
