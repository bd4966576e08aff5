package main

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
)

// Target is a server and how to log in.
type Target struct {
	URL string // redis://[user:password@]host[:port], or host:port; "" for the usual port of this machine
	*redis.Options
}

const dialTimeout = 5 * time.Second

// resolve reads the URL.
func (t *Target) resolve() (err error) {
	text := t.URL
	if !strings.Contains(text, "://") {
		text = "redis://" + text
	}
	if t.Options, err = redis.ParseURL(text); err != nil || t.TLSConfig != nil || t.Network != "tcp" {
		return fmt.Errorf("%q is no address such as 127.0.0.1:6379 or redis://user:password@host:6379", t.URL)
	}
	t.Protocol, t.DialTimeout, t.ReadTimeout, t.PoolSize, t.MaxRetries, t.DisableIdentity = 2, dialTimeout, time.Minute, 1, -1, true
	return nil
}

// silence is done once the client library is told to log nothing.
var silence sync.Once

// client returns a client for questions before and after the load.
func (t *Target) client() *redis.Client {
	// It would log each failed dial, which is also in the errors that it returns.
	silence.Do(logging.Disable)
	own := *t.Options
	return redis.NewClient(&own)
}

// dial connects and logs in.
func (t *Target) dial(ctx context.Context) (net.Conn, error) {
	nc, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, "tcp", t.Addr)
	if err != nil || t.Password == "" {
		return nc, err
	}
	words := []string{"AUTH", t.Username, t.Password}
	if t.Username == "" {
		words = []string{"AUTH", t.Password}
	}
	nc.SetDeadline(time.Now().Add(dialTimeout))
	_, err = nc.Write(encode(words, 0, 0, "", "").bytes)
	line := ""
	if err == nil {
		line, err = bufio.NewReader(nc).ReadString('\n')
	}
	if err == nil && !strings.HasPrefix(line, "+OK") {
		err = fmt.Errorf("AUTH was refused: %s", strings.TrimSpace(strings.TrimPrefix(line, "-")))
	}
	if err != nil {
		nc.Close()
		return nil, err
	}
	return nc, nc.SetDeadline(time.Time{})
}
