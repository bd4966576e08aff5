package cluster

import (
	"fmt"
	"time"

	"github.com/hashicorp/raft"

	"github.com/fbfkv/fbfkv/cluster/raftgroup"
)

// How long a write or an fsync of the log may take (R8). The age is the op log's (oplog.OnHang): a pause
// of the process or the machine does not count.
const (
	// hangMost is after what time it is logged and counted, or after hangPart of the node timeout
	// if that is less.
	hangMost = 2 * time.Second
	hangPart = 2
	// hangSilent is after what time a leader says nothing to the others any more, so that one of
	// them is elected.
	hangSilent = 5 * time.Second
	// hangShy is how long after such a time leadership does not return to this node.
	hangShy = 10 * time.Minute
	// hangEnds is after what time the process ends.
	hangEnds = 30 * time.Second
)

// watchDisk has the node hear of a disk that does not answer. Elections wait for the node's own
// values as the shard's log does for its files.
func (n *Node) watchDisk() {
	n.log.Watch(n.o.Stable.Work())
	if w := n.witness(); w != nil {
		n.log.Watch(w.values.Work())
	}
	n.log.OnHang(min(hangMost, hangPart*n.o.Timeout), n.diskHangs)
}

// diskHangs does what the age of a write or an fsync of the log asks for; 0: the disk answers again. It
// waits for nothing: what it does must happen even if all else waits for the disk.
func (n *Node) diskHangs(age time.Duration) {
	select {
	case <-n.begun:
	default:
		return // Raft is not there yet, and nobody follows this node
	}
	switch {
	case age >= hangEnds:
		if n.ends.Swap(true) {
			return
		}
		_ = n.o.Net.Abandon() // the process may not be able to end while a thread waits for the disk
		n.fail(fmt.Errorf("the disk has not answered for %v", age.Round(time.Second)))
	case age >= hangSilent:
		n.hung.Set(time.Now())
		if n.o.DiskHangs != nil {
			n.o.DiskHangs()
		}
		if n.raft.State() == raft.Leader && len(raftgroup.Voters(n.raft)) > 1 && !n.transport.Silence(true) {
			go n.stopLeading("its disk does not answer, and another node is to lead")
		}
	}
}

// DiskHangs has this node say nothing to the others of the meta group any more if it leads that:
// its disk, on which the group's log is as well, has not answered for long, so that another one is
// elected (R8). It waits for nothing.
func (m *Meta) DiskHangs() {
	if m.raft.State() == raft.Leader && len(raftgroup.Voters(m.raft)) > 1 {
		m.transport.Silence(true)
	}
}

// hasHung reports whether the disk has not answered for long a short while ago.
func (n *Node) hasHung() bool {
	at := n.hung.Get()
	return !at.IsZero() && time.Since(at) < hangShy
}
