package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/fbfkv/fbfkv/server"
	"github.com/spf13/pflag"
)

// settingFlag collects the value of one setting's flag.
type settingFlag struct {
	setting *server.Setting
	value   string
	given   bool
}

// Set takes the flag's value and checks it.
func (f *settingFlag) Set(value string) error {
	switch {
	case f.given && f.setting.Lines:
		value = f.value + "\n" + value
	case f.given && !f.setting.Repeatable:
		return fmt.Errorf("set twice")
	case f.given:
		value = f.value + " " + value
	}
	if err := f.setting.Set(server.DefaultConfig(), value); err != nil {
		return err
	}
	f.value, f.given = value, true
	return nil
}

// String returns the value given; there is none before Set.
func (f *settingFlag) String() string { return f.value }

// Type names the value in pflag's own messages.
func (f *settingFlag) Type() string { return f.setting.Syntax() }

// settingFlags are the flags of all settings.
type settingFlags []*settingFlag

// addSettings adds a flag for each setting.
func addSettings(flags *pflag.FlagSet) settingFlags {
	all := make(settingFlags, len(server.Settings))
	for i := range server.Settings {
		all[i] = &settingFlag{setting: &server.Settings[i]}
		flags.Var(all[i], all[i].setting.Name, all[i].setting.Doc)
	}
	return all
}

// config returns the settings: the defaults, then the file's, then the flags'. An
// error is of type server.Faults: all that is wrong with them, as far as Check sees.
func (all settingFlags) config(file string) (*server.Config, error) {
	c := server.DefaultConfig()
	var faults server.Faults
	if file != "" {
		errors.As(server.ReadConfigFile(file, c), &faults)
	}
	for _, f := range all {
		if !f.given {
			continue
		}
		if err := f.setting.Set(c, f.value); err != nil {
			faults = append(faults, fmt.Sprintf("--%s: %v", f.setting.Name, err))
		}
	}
	if faults = append(faults, c.Check()...); len(faults) > 0 {
		return nil, faults
	}
	return c, nil
}

// redisStyle rewrites arguments as redis-server takes them to what pflag
// understands: `--save 60 1` and `--bind 127.0.0.1 ::1` have values of several
// words, and a switch may stand without its yes.
func redisStyle(args []string) []string {
	var out []string
	for i := 0; i < len(args); i++ {
		name, isFlag := strings.CutPrefix(args[i], "--")
		s := server.LookUp(name)
		if !isFlag || s == nil {
			out = append(out, args[i])
			continue
		}
		values := wordsAfter(args[i+1:], s)
		i += len(values)
		if len(values) == 0 && s.Syntax() == "yes|no" {
			values = []string{"yes"}
		}
		if len(values) == 0 {
			out = append(out, args[i]) // pflag says what is missing
			continue
		}
		out = append(out, "--"+s.Name+"="+strings.Join(values, " "))
	}
	return out
}

// wordsAfter returns those of the arguments after a flag that are its value.
func wordsAfter(args []string, s *server.Setting) []string {
	n := 0
	for n < len(args) && !strings.HasPrefix(args[n], "--") {
		n++
		if !s.IsList() {
			break
		}
	}
	if n == 1 && s.Syntax() == "yes|no" && !strings.EqualFold(args[0], "yes") &&
		!strings.EqualFold(args[0], "no") {
		return nil
	}
	return args[:n]
}
