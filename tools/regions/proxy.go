package main

import (
	"net"
	"sync"
	"time"
)

// proxy leads to a server; bytes take a while each way. It can be cut.
type proxy struct {
	net.Listener
	target string
	delay  time.Duration

	mu    sync.Mutex
	down  bool
	conns map[net.Conn]bool
}

func newProxy(target string, delay time.Duration) (*proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{Listener: l, target: target, delay: delay, conns: make(map[net.Conn]bool)}
	go p.accept()
	return p, nil
}

func (p *proxy) accept() {
	for {
		c, err := p.Accept()
		if err != nil {
			return
		}
		to, err := net.Dial("tcp", p.target)
		if err != nil {
			c.Close()
			continue
		}
		p.mu.Lock()
		p.conns[c], p.conns[to] = true, true
		if p.down {
			c.Close()
			to.Close()
		}
		p.mu.Unlock()
		go p.carry(to, c)
		go p.carry(c, to)
	}
}

// carry carries bytes in one direction, each piece the delay after it came.
func (p *proxy) carry(to, from net.Conn) {
	type piece struct {
		due time.Time
		b   []byte
	}
	pieces := make(chan piece, 4096)
	go func() {
		defer to.Close()
		for c := range pieces {
			time.Sleep(time.Until(c.due))
			to.Write(c.b) // its failure ends the other side
		}
	}()
	defer close(pieces)
	for {
		b := make([]byte, 64<<10)
		n, err := from.Read(b)
		if err != nil {
			return
		}
		pieces <- piece{time.Now().Add(p.delay), b[:n]}
	}
}

// cut breaks all connections, and new ones, or no more.
func (p *proxy) cut(down bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.down = down; down {
		for c := range p.conns {
			c.Close()
		}
		clear(p.conns)
	}
}

func (p *proxy) close() {
	p.cut(true)
	p.Close()
}
