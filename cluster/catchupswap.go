package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/raft"

	"github.com/fbfkv/fbfkv/cluster/raftgroup"
	"github.com/fbfkv/fbfkv/persistence"
)

// swapValue is the name of the node's own value that says that it takes other files.
const swapValue = "fbfkv.swap"

// The steps of a swap. Each is noted before it begins, and is repeated after a crash.
const (
	stepErase = "erase" // the node's own files go
	stepAdopt = "adopt" // those that it has fetched come, with what belongs to them
)

// swap is what a node does with the files that it has fetched. It keeps its id and its vote:
// whom it voted for is true whatever its log holds.
type swap struct {
	Step string `json:"step"`
	// Term is the term of the last entry of the fetched log. The node's own term becomes no lower:
	// no node leads in a term before the term of an entry of its log.
	Term uint64 `json:"term"`
	// Snapshot is the manifest's.
	Snapshot *raft.SnapshotMeta `json:"snapshot,omitempty"`
	// Counts counts the node's transfers, across its restarts.
	Counts TransferCounts `json:"counts"`
}

// begin notes the swap, for finishSwap to do.
func (w swap) begin(stable *raftgroup.Stable) error {
	w.Step = stepErase
	return w.note(stable)
}

func (w swap) note(stable *raftgroup.Stable) error {
	b, err := json.Marshal(w)
	if err != nil {
		return err
	}
	return stable.Set([]byte(swapValue), b)
}

// finishSwap does what begin has noted, before the data directory is opened. After an error or a
// crash it must be called again, and until then nothing else may use the directory.
func finishSwap(fsys vfs.FS, dir string, stable *raftgroup.Stable, log *slog.Logger) (c TransferCounts,
	err error) {
	b, err := stable.Get([]byte(swapValue))
	if err != nil || len(b) == 0 {
		return c, err
	}
	var w swap
	if err := json.Unmarshal(b, &w); err != nil {
		return c, fmt.Errorf("%w: value %s: %w", persistence.ErrCorrupt, swapValue, err)
	}
	return w.Counts, w.finish(fsys, dir, stable, log)
}

func (w swap) finish(fsys vfs.FS, dir string, stable *raftgroup.Stable, log *slog.Logger) error {
	if w.Step == stepErase {
		if err := persistence.Erase(fsys, dir); err != nil {
			return err
		}
		w.Step = stepAdopt
		if err := w.note(stable); err != nil {
			return err
		}
	}
	if err := persistence.Adopt(fsys, fsys.PathJoin(dir, persistence.IncomingName), dir); err != nil {
		return err
	}
	if _, err := fsys.Stat(fsys.PathJoin(dir, "META")); err != nil {
		return fmt.Errorf("the files that this node has fetched are gone: replace it by a new node (fbfkv "+
			"cluster replace): %w", err)
	}
	if err := w.adopt(stable); err != nil {
		return err
	}
	log.Info("this node has the files that it fetched from the leader", "term", w.Term)
	return stable.Set([]byte(swapValue), nil)
}

// adopt takes over what belongs to the files.
func (w swap) adopt(stable *raftgroup.Stable) error {
	term, err := stable.GetUint64([]byte(raftgroup.TermValue))
	if err == nil && term < w.Term {
		err = stable.SetUint64([]byte(raftgroup.TermValue), w.Term)
	}
	return errors.Join(err, stable.SetLast(w.Snapshot))
}
