// Command fbfkv is the server: idempotent counters for any Redis client.
//
// It reads its settings from flags and a configuration file, opens the data
// directory, serves until it is told to stop, and closes the directory again.
// fbfkv --help settings lists every setting.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/fbfkv/fbfkv/server"
	"github.com/spf13/cobra"
)

func main() {
	privateFiles()
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// run is main with everything that it touches as arguments. An error is one plain
// line on stderr, or one for each fault of the settings, and exit status 1, unless
// the error names another.
func run(args []string, stdout, stderr io.Writer) int {
	root := newRootCommand()
	if !startsWithSubcommand(root, args) {
		args = redisStyle(args) // a subcommand's flags are its own
	}
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	if err := root.Execute(); err != nil {
		faults := server.Faults{err.Error()}
		errors.As(err, &faults)
		for _, f := range faults {
			fmt.Fprintf(stderr, "fbfkv: %s\n", oneLine(f))
		}
		var wants interface{ ExitStatus() int }
		if errors.As(err, &wants) {
			return wants.ExitStatus()
		}
		return 1
	}
	return 0
}

// startsWithSubcommand reports whether the first argument is a subcommand's name.
func startsWithSubcommand(root *cobra.Command, args []string) bool {
	return len(args) > 0 && slices.ContainsFunc(root.Commands(), func(c *cobra.Command) bool {
		return c.Name() == args[0]
	})
}

// oneLine joins the lines of a message, each of which may be an error by itself.
func oneLine(s string) string {
	var lines []string
	for line := range strings.Lines(s) {
		if words := strings.Fields(line); len(words) > 0 {
			lines = append(lines, strings.Join(words, " "))
		}
	}
	return strings.Join(lines, "; ")
}
