package cluster

import (
	"io"
)

func (n *Node) restore(b []byte) error { return nil }
func (n *Node) readConfiguration(r io.ReadCloser) error {
	defer r.Close()
	b, err := io.ReadAll(io.LimitReader(r, maxConfiguration+1))
	if err != nil || len(b) == 0 {
		return err
	}
	return n.takeConfiguration(b)
}
func (n *Node) encoded() ([]byte, error) {
	c := n.Configuration()
	if c.Version == 0 {
		return nil, nil
	}
	return c.Encode()
}
