package commands

import (
	"errors"
	"slices"
	"strings"
)

// configGet is CONFIG GET pattern …: every setting that matches one of the
// patterns, once.
func configGet(c *Context) {
	var found [][2]string
	seen := map[string]bool{}
	for _, pattern := range c.Args[2:] {
		if err := checkPattern(pattern); c.failed(err) {
			return
		}
		for _, s := range c.Server.settings(strings.ToLower(string(pattern))) {
			if !seen[s[0]] {
				seen[s[0]] = true
				found = append(found, s)
			}
		}
	}
	c.W.Map(len(found))
	for _, s := range found {
		c.W.Pair(s[0], s[1])
	}
}

// settings returns the settings whose name matches a pattern.
func (s *Server) settings(pattern string) [][2]string {
	if s.ConfigGet == nil {
		return nil
	}
	return s.ConfigGet(pattern)
}

// configSet is CONFIG SET name value …: all of them or none.
func configSet(c *Context) {
	args := c.Args[2:]
	if len(args)%2 != 0 {
		c.fail(errSyntax)
		return
	}
	var pairs [][2]string
	for i := 0; i < len(args); i += 2 {
		pairs = append(pairs, [2]string{strings.ToLower(string(args[i])), string(args[i+1])})
	}
	if err := c.Server.checkNames(pairs); err != nil {
		c.fail(configRefusal(err))
		return
	}
	c.ok(configRefusal(c.Server.ConfigSet(pairs)))
}

// checkNames refuses settings that do not exist or are there twice.
func (s *Server) checkNames(pairs [][2]string) error {
	seen := map[string]bool{}
	for _, p := range pairs {
		exists := func(known [2]string) bool { return known[0] == p[0] }
		switch {
		case s.ConfigSet == nil || len(p[0]) > maxPattern || !slices.ContainsFunc(s.settings(p[0]), exists):
			return &ConfigError{Name: p[0], Unknown: true}
		case seen[p[0]]:
			return &ConfigError{Name: p[0], Reason: "duplicate parameter"}
		}
		seen[p[0]] = true
	}
	return nil
}

// configRefusal words an error of CONFIG SET as Redis does.
func configRefusal(err error) error {
	var blamed *ConfigError
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &blamed):
		return refusal("ERR CONFIG SET failed - " + err.Error())
	case blamed.Unknown:
		return refusal("ERR Unknown option or number of arguments for CONFIG SET - '" + blamed.Name + "'")
	}
	return refusal("ERR CONFIG SET failed (possibly related to argument '" + blamed.Name + "') - " +
		blamed.Reason)
}

// configRewrite is CONFIG REWRITE.
func configRewrite(c *Context) {
	if c.Server.ConfigRewrite == nil {
		c.fail(refusal("ERR The server is running without a config file"))
		return
	}
	if err := c.Server.ConfigRewrite(); err != nil {
		c.fail(refusal("ERR Rewriting config file: " + err.Error()))
		return
	}
	c.W.Status("OK")
}

// configResetStat is CONFIG RESETSTAT.
func configResetStat(c *Context) {
	c.Server.Observer.Reset(c.Store)
	if c.Server.ResetStats != nil {
		c.Server.ResetStats()
	}
	c.W.Status("OK")
}

// configFlags are the flags of CONFIG's subcommands.
const configFlags = Admin | NoScript | Loading | Stale

// configCommands are CONFIG and its subcommands.
var configCommands = []Command{{
	Name: "config", Arity: -2, Group: groupServer, Since: "2.0.0",
	Summary: "A container for commands on the server's settings.",
	Subcommands: []Command{
		{
			Name: "get", Arity: -3, Flags: configFlags,
			Complexity: "O(N*M), where N is the number of settings and M of patterns",
			Summary:    "Returns the settings whose names match.", Args: []Arg{multi(patArg("parameter"))},
			Run: configGet,
		},
		{
			Name: "set", Arity: -4, Flags: configFlags,
			Complexity: "O(N), where N is the number of settings",
			Tips:       []string{"request_policy:all_nodes", "response_policy:all_succeeded"},
			Summary:    "Changes settings, all of them or none.",
			Args:       []Arg{multi(block("data", strArg("parameter"), strArg("value")))}, Run: configSet,
			Secret: configSecret, Audit: configAudit,
		},
		{
			Name: "resetstat", Arity: 2, Flags: configFlags, Summary: "Resets the statistics of INFO.",
			Run: configResetStat, Audit: auditAll,
		},
		{
			Name: "rewrite", Arity: 2, Flags: configFlags, Since: "2.8.0",
			Summary: "Writes the settings to the configuration file.", Run: configRewrite, Audit: auditAll,
		},
		since("5.0.0", helpFor("config", groupServer)),
	},
}}
