package server

import (
	"fmt"
	"net"
	"strconv"

	"github.com/fbfkv/fbfkv/commands/observe"
)

// operationSettings are the settings of GroupOperation: what looks after the
// server from outside.
var operationSettings = []Setting{
	{
		Name: "metrics-addr", Group: GroupOperation, Default: `""`,
		Doc: `The host:port for Prometheus (/metrics) and for health checks (/healthz, /readyz), over HTTP; "" is none. ` +
			"It asks for no password: choose an address that only you can reach.",
		kind: text(func(c *Config) *string { return &c.MetricsAddr }, "<host:port>", 512).must(hostAndPort),
	}, {
		Name: "pprof", Group: GroupOperation, Default: "no",
		Doc:  "Serve profiles of the running program under /debug/pprof/ on metrics-addr.",
		kind: yesNo(func(c *Config) *bool { return &c.Pprof }),
	}, {
		Name: "log-format", Group: GroupOperation, Default: "text",
		Doc:  "How messages are logged: one line of key=value pairs each, or one JSON object.",
		kind: choice(func(c *Config) *string { return &c.LogFormat }, "text", "json"),
	},
}

// hostAndPort accepts an address to listen on, or none.
func hostAndPort(c *Config) error {
	if c.MetricsAddr == "" {
		return nil
	}
	_, port, err := net.SplitHostPort(c.MetricsAddr)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return fmt.Errorf("argument must be host:port, such as 127.0.0.1:9379")
	}
	return nil
}

// Figures returns the server's own numbers, for reports.
func (s *Server) Figures() observe.ServerFigures { return s.figures() }
