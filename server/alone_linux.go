package server

// serveAlone carries out the request that a connection holds back, and nothing
// beside it: a command that must see the state by itself or may take long, or any
// while clients are paused. A private worker does it in its own goroutine, which
// the other connections do not notice.
func (w *worker) serveAlone(c *polled) {
	if !w.private {
		go w.loop.serveAlone(c)
		return
	}
	// The requests before this one are answered and must not be executed again.
	w.round.Reset()
	w.guard(c, (*worker).carryOut)
	c.held = nil
	if c.err == errPanicked {
		w.newRound()
	}
	c.more = true // what follows the request in the buffer is not looked at yet
	w.again = append(w.again, c)
}

// serveAlone serves one connection until it waits for its client again.
func (l *eventLoop) serveAlone(c *polled) {
	w := l.sparePrivate.Get().(*worker)
	w.serveAlone(c)
	for w.unfinished() {
		w.conns = append(append(w.conns[:0], w.starved...), w.again...)
		w.starved, w.again = w.starved[:0], w.again[:0]
		w.serve()
	}
	clear(w.conns[:cap(w.conns)])
	l.sparePrivate.Put(w)
}

// carryOut carries out the request held back.
func (w *worker) carryOut(c *polled) {
	c.phase.Store(phaseWorking)
	pause := &w.loop.server.pause
	if pause.active() {
		if c.err = pause.wait(c.pipeline, c.held, func() error { return nil }, c.gone,
			w.loop.stopping); c.err != nil {
			return
		}
	}
	w.round.Join(c.pipeline)
	w.prepare(c)
	c.pipeline.Do(c.held, w.replies)
	c.pipeline.Flush(w.replies)
	limits, _ := c.limits(w.loop.server.config.Load()) // it may have logged in
	c.reader.SetLimits(limits)
	w.send(c)
}

// gone reports whether the client will send no more.
func (c *polled) gone() bool {
	c.takeEvents()
	return c.last
}

// dedicate gives a connection a goroutine of its own, because it is sent more than replies.
func (w *worker) dedicate(c *polled) {
	s := w.loop.server
	w.loop.forget(c)
	nc, err := c.detach()
	if err != nil {
		s.log.Warn("cannot serve a client", "client", c.session.Addr, "error", err)
		s.remove(&c.conn)
		return
	}
	reader := c.reader
	if reader == nil {
		reader = w.readers.get()
		reader.Reset(nc)
	}
	d := dedicate(s, nc, c.session, c.pipeline, reader)
	d.in.Store(c.in.Load())
	d.out.Store(c.out.Load())
	d.reads.Store(c.reads.Load())
	d.writes.Store(c.writes.Load())
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns[c.session.ID] = &d.conn
	if s.stopping {
		d.stop()
	}
	d.start()
}

// close ends a connection that the worker owns.
func (w *worker) close(c *polled) {
	s := w.loop.server
	c.ended(c.err)
	w.loop.forget(c)
	text, told := goodbyeText(c.err)
	if c.tls != nil && !told {
		c.tls.CloseWrite() // unless there is no room for it
	}
	if c.reader != nil {
		c.reader.Reset(nil)
		w.readers.put(c.reader)
		c.reader = nil
	}
	c.unsent = nil
	if !told {
		c.close()
		s.remove(&c.conn)
		return
	}
	go func() {
		defer s.remove(&c.conn)
		if nc, err := c.detach(); err == nil {
			linger(nc, text)
		}
	}()
}
