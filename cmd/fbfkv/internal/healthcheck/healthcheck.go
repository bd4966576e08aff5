// Package healthcheck is the command `fbfkv healthcheck`: it asks a running
// server whether it is ready, for containers that have no other program to ask.
package healthcheck

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

const help = `Asks a server at its metrics-addr whether it is ready for clients. The exit status is
0 if it is, otherwise 1, with the reason on one line.`

// maxAnswer is the most that is read of an answer, in bytes.
const maxAnswer = 4 << 10

// New returns the subcommand.
func New() *cobra.Command {
	var url string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "healthcheck [--url URL] [--timeout DURATION]",
		Short: "ask a running server whether it is ready",
		Long:  help,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return ask(&http.Client{Timeout: timeout}, url)
		},
	}
	cmd.Flags().StringVar(&url, "url", "http://127.0.0.1:9379/readyz", "the page to ask, on the server's "+
		"metrics-addr")
	cmd.Flags().DurationVar(&timeout, "timeout", 5*time.Second, "how long to wait for an answer")
	return cmd
}

// ask returns an error unless the page answers 200.
func ask(client *http.Client, url string) error {
	response, err := client.Get(url)
	if err != nil {
		return fmt.Errorf("not ready: %w", err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("not ready: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("not ready: %s", strings.TrimSpace(string(text)))
	}
	return nil
}
