package server

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Check returns all that would keep a server with these settings from starting, as
// far as it shows without the data directory and without opening ports: which
// settings do not go together, and whether the files that they name can be used.
func (c *Config) Check() (faults Faults) {
	tlsFiles := func() error {
		if c.TLS.Port == 0 {
			return nil
		}
		_, err := c.TLS.read()
		return err
	}
	users := func() error {
		_, err := c.OpenUsers()
		return err
	}
	for _, check := range []func() error{users, c.checkPorts, tlsFiles, c.checkLogFile} {
		if err := check(); err != nil {
			faults = append(faults, err.Error())
		}
	}
	return faults
}

// checkPorts refuses one port for two purposes.
func (c *Config) checkPorts() error {
	if c.TLS.Port != 0 && c.Port == c.TLS.Port {
		return fmt.Errorf("port and tls-port are both %d: give each its own, or set port to 0", c.Port)
	}
	return nil
}

// checkLogFile refuses a file that cannot be appended to. It creates none.
func (c *Config) checkLogFile() error {
	if c.LogFile == "" {
		return nil
	}
	f, err := os.OpenFile(c.LogFile, os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		return f.Close()
	}
	if errors.Is(err, fs.ErrNotExist) {
		_, err = os.ReadDir(filepath.Dir(c.LogFile))
	}
	if err != nil {
		return fmt.Errorf("logfile: %w", err)
	}
	return nil
}
