package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// slicePeriod is how often a slice of the processor begins anew, µs: short beside the time-outs of a cluster.
const slicePeriod = 20_000

// slice is a control group that may use a part of one processor.
type slice struct{ dir string }

// newSlice puts a process with all its threads into a group that may use so many percent of a processor, and gets them
// before what else the machine does. Only root may.
func newSlice(pid int, percent float64) (*slice, error) {
	quota := strconv.Itoa(int(percent / 100 * slicePeriod))
	parent, settings := "/sys/fs/cgroup/cpu", [][2]string{{"cpu.cfs_period_us", strconv.Itoa(slicePeriod)}, {"cpu.cfs_quota_us", quota}, {"cpu.shares", "262144"}}
	if b, err := os.ReadFile("/sys/fs/cgroup/cgroup.controllers"); err == nil && strings.Contains(string(b), "cpu") { // version 2
		parent, settings = "/sys/fs/cgroup", [][2]string{{"cpu.max", fmt.Sprint(quota, " ", slicePeriod)}, {"cpu.weight", "10000"}}
		if err := os.WriteFile(parent+"/cgroup.subtree_control", []byte("+cpu"), 0); err != nil {
			return nil, err
		}
	}
	s := &slice{filepath.Join(parent, fmt.Sprintf("fbfkv-scaling-%d", pid))}
	if err := os.Mkdir(s.dir, 0o755); err != nil {
		return nil, fmt.Errorf("a slice of the processor: %w (only root can make one; -slice 0 measures without)", err)
	}
	for _, set := range append(settings, [2]string{"cgroup.procs", strconv.Itoa(pid)}) {
		if err := os.WriteFile(filepath.Join(s.dir, set[0]), []byte(set[1]), 0); err != nil {
			return nil, errors.Join(err, s.close())
		}
	}
	return s, nil
}

// close removes the group, whose process has ended.
func (s *slice) close() error { return os.Remove(s.dir) }
