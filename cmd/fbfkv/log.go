package main

import (
	"io"
	"log/slog"
	"math"
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

// logOutput is where a log goes.
type logOutput interface {
	io.WriteCloser
	reopen() error
}

// logging is the program's log.
type logging struct {
	*slog.Logger
	level *slog.LevelVar
	out   logOutput
}

// openLog returns the log that the settings ask for.
func openLog(c *server.Config, stderr io.Writer) (*logging, error) {
	l := &logging{level: new(slog.LevelVar), out: standardError{stderr}}
	l.level.Set(logLevels[c.LogLevel])
	if c.LogFile != "" {
		f, err := openLogFile(c.LogFile)
		if err != nil {
			return nil, err
		}
		l.out = f
	}
	options := &slog.HandlerOptions{Level: l.level, ReplaceAttr: readable}
	if c.LogFormat == "json" {
		l.Logger = slog.New(slog.NewJSONHandler(l.out, options))
	} else {
		l.Logger = slog.New(slog.NewTextHandler(l.out, options))
	}
	return l, nil
}

// readable writes durations with their unit, as 1.5s, in JSON too, and levels by
// their names in redis.conf.
func readable(groups []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		return slog.String(a.Key, a.Value.Duration().String())
	}
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
func (l *logging) setLevel(c *server.Config) error {
	l.level.Set(logLevels[c.LogLevel])
	return nil
}
