package main

import (
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"strings"

	"github.com/fbfkv/fbfkv/server"
)

// logLevels are redis.conf's levels.
var logLevels = map[string]slog.Level{
	"debug":   slog.LevelDebug,
	"verbose": server.LevelVerbose,
	"notice":  slog.LevelInfo,
	"warning": slog.LevelWarn,
	"nothing": math.MaxInt,
}

// openLog returns the logger that the settings ask for, the variable that holds
// its level, and what closes it.
func openLog(c *server.Config, stderr io.Writer) (*slog.Logger, *slog.LevelVar, func() error, error) {
	level := new(slog.LevelVar)
	level.Set(logLevels[c.LogLevel])
	out, closeLog := stderr, func() error { return nil }
	if c.LogFile != "" {
		f, err := os.OpenFile(c.LogFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
		if err != nil {
			return nil, nil, nil, fmt.Errorf("logfile: %w", err)
		}
		out, closeLog = f, f.Close
	}
	handler := slog.NewTextHandler(out, &slog.HandlerOptions{Level: level, ReplaceAttr: nameLevel})
	return slog.New(handler), level, closeLog, nil
}

// nameLevel writes levels by their names in redis.conf.
func nameLevel(groups []string, a slog.Attr) slog.Attr {
	if a.Key != slog.LevelKey || len(groups) > 0 {
		return a
	}
	level, _ := a.Value.Any().(slog.Level)
	for name, l := range logLevels {
		if l == level {
			return slog.String(slog.LevelKey, name)
		}
	}
	return slog.String(slog.LevelKey, strings.ToLower(level.String()))
}

// setLevel carries out CONFIG SET loglevel.
func setLevel(level *slog.LevelVar) func(*server.Config) error {
	return func(c *server.Config) error {
		level.Set(logLevels[c.LogLevel])
		return nil
	}
}
