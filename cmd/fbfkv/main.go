// Command fbfkv is the server: idempotent counters for any Redis client.
//
// It reads its settings from flags and a configuration file, opens the data
// directory, serves until it is told to stop, and closes the directory again.
// fbfkv --help lists every setting.
package main

import (
	"fmt"
	"io"
	"os"
	"strings"
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// run is main with everything that it touches as arguments. What goes wrong is
// one plain line on stderr and exit status 1.
func run(args []string, stdout, stderr io.Writer) int {
	root := newRootCommand()
	root.SetArgs(redisStyle(args))
	root.SetOut(stdout)
	root.SetErr(stderr)
	if err := root.Execute(); err != nil {
		fmt.Fprintf(stderr, "fbfkv: %s\n", oneLine(err.Error()))
		return 1
	}
	return 0
}

// oneLine joins the lines of a message.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
