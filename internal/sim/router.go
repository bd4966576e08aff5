package sim

import (
	"net"
	"strings"
	"time"
)

// router is a Sender of the scenario of a cluster. It follows MOVED.
type router struct {
	*Client
	w        *World
	machines []*Machine        // of the cluster
	at       map[string]string // by key: the address of the server that had it last
}

func newRouter(w *World, machines []*Machine) *router {
	return &router{NewClient(w), w, machines, make(map[string]string)}
}

// Send implements Sender.
func (r *router) Send(key string, patience time.Duration, commands ...[]string) (replies []any, from string,
	err error) {
	to := r.at[key]
	if to == "" {
		to = r.machines[r.w.Intn(len(r.machines))].Address(clientPort)
	}
	if replies, err = r.Client.Send(to, patience, commands...); err != nil {
		delete(r.at, key)
		return replies, to, err
	}
	r.at[key] = to
	r.learn(key, replies)
	return replies, to, nil
}

// learn takes the address of a key's server from replies.
func (r *router) learn(key string, replies []any) {
	for _, reply := range replies {
		switch reply := reply.(type) {
		case []any:
			r.learn(key, reply)
		case replyError:
			delete(r.at, key)
			words := strings.Split(string(reply), " ")
			if len(words) != 3 || words[0] != "MOVED" {
				continue
			}
			if host, _, err := net.SplitHostPort(words[2]); err == nil && host != "" {
				r.at[key] = words[2]
			}
			return
		}
	}
}
