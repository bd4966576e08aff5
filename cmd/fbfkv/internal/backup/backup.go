// Package backup is the command `fbfkv backup`: it asks a running server for a
// consistent copy of its data directory and waits for it.
package backup

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/fbfkv/fbfkv/cmd/fbfkv/internal/bar"
)

// options are the command's flags.
type options struct {
	host, user, password string
	port                 int

	tls           bool
	ca, cert, key string // paths
	tlsConfig     *tls.Config
}

// passwordVariable is where redis-cli looks for a password, too.
const passwordVariable = "REDISCLI_AUTH"

const help = `Asks a running server on this machine for a consistent copy of its data directory
(command BACKUP) and waits until it is complete. Clients go on meanwhile. DIR must
be empty or not exist; the server's user needs permission to create it. On the same
file system most of the copy consists of links, so it is quick and small.

The user needs permission to run BACKUP. Set the password in the environment
variable ` + passwordVariable + `, as for redis-cli: there, other users cannot see it.

fbfkv check DIR checks the copy, fbfkv restore DIR NEW makes a data directory from
it. A copy on the same disk is lost with that disk: copy it to another machine.`

// New returns the subcommand.
func New() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "backup [--host H] [--port P] [--user NAME] [--requirepass PASSWORD] [--tls [--cacert F] [--cert F --key F]] DIR",
		Short: "copy the data directory of a running server",
		Long:  help,
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.run(args[0], cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	cmd.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
		fmt.Fprintf(cmd.OutOrStdout(), "%s\n\n%s", cmd.Long, cmd.UsageString())
	})
	cmd.Flags().StringVar(&o.host, "host", "127.0.0.1", "the server's address")
	cmd.Flags().IntVar(&o.port, "port", 6379, "the server's port")
	cmd.Flags().StringVar(&o.user, "user", "", "the user to log in as (default: the user default)")
	cmd.Flags().StringVar(&o.password, "requirepass", os.Getenv(passwordVariable), "the user's password")
	cmd.Flags().Lookup("requirepass").DefValue = "" // the help shows no password
	cmd.Flags().BoolVar(&o.tls, "tls", false, "connect with TLS")
	cmd.Flags().StringVar(&o.ca, "cacert", "", "the authority that signed the server's certificate, in PEM (default: the system's)")
	cmd.Flags().StringVar(&o.cert, "cert", "", "the certificate to show, in PEM")
	cmd.Flags().StringVar(&o.key, "key", "", "its private key, in PEM")
	return cmd
}

// connect returns a client of one connection that waits for a reply as long as
// it takes, and never sends a command twice.
func (o *options) connect() *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: net.JoinHostPort(o.host, strconv.Itoa(o.port)), Username: o.user, Password: o.password,
		TLSConfig: o.tlsConfig, PoolSize: 1, MaxRetries: -1, ReadTimeout: -1, DisableIdentity: true,
	})
}

// readTLS reads the files of the TLS flags.
func (o *options) readTLS() (*tls.Config, error) {
	c := &tls.Config{ServerName: o.host}
	if o.ca != "" {
		text, err := os.ReadFile(o.ca)
		if err != nil {
			return nil, fmt.Errorf("--cacert: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("--cacert %s: it contains no certificate", o.ca)
		}
	}
	if o.cert != "" || o.key != "" {
		pair, err := tls.LoadX509KeyPair(o.cert, o.key)
		if err != nil {
			return nil, fmt.Errorf("--cert and --key: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

func (o *options) run(dir string, stdout, stderr io.Writer) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	if o.user != "" && o.password == "" {
		return errors.New("--user needs a password: see fbfkv backup --help")
	}
	if o.tls {
		if o.tlsConfig, err = o.readTLS(); err != nil {
			return err
		}
	}
	ctx := context.Background()
	asking, watching := o.connect(), o.connect()
	defer asking.Close()
	defer watching.Close()
	began := time.Now()
	done := make(chan error, 1)
	go func() { done <- asking.Do(ctx, "BACKUP", dir).Err() }()
	progress := bar.New(stderr)
	for {
		select {
		case err := <-done:
			progress.Clear()
			if err != nil {
				return explain(dir, err)
			}
			fmt.Fprintf(stdout, "backed up to %s in %.1f s\n", dir, time.Since(began).Seconds())
			return nil
		case <-time.After(200 * time.Millisecond):
			// Not knowing how far the server is does not matter.
			if info, err := watching.Info(ctx, "persistence").Result(); err == nil {
				show(progress, info)
			}
		}
	}
}

// show draws what INFO persistence says of the backup.
func show(progress *bar.Bar, info string) {
	fields := make(map[string]string)
	for line := range strings.Lines(info) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = value
		}
	}
	stage := fields["backup_stage"]
	if stage == "" {
		return
	}
	done, _ := strconv.ParseInt(fields["backup_done"], 10, 64)
	total, _ := strconv.ParseInt(fields["backup_total"], 10, 64)
	progress.Set(stage, stage == "copy", done, total)
}

// explain says what an error means for the copy.
func explain(dir string, err error) error {
	var reply redis.Error
	if errors.As(err, &reply) {
		return fmt.Errorf("the server made no backup: %w", err)
	}
	return fmt.Errorf("the connection failed: %w (if %s appears anyway, it is complete)", err, dir)
}
