package bench

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"runtime"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// How often the server is looked at, and how often the lists of threads are read.
// A look costs some 200 µs.
const (
	waitPeriod = 10 * time.Millisecond
	taskPeriod = 200 * time.Millisecond
)

// watchWaits looks at a process of this machine from now on. The function that it
// returns ends that, and says what the machine's idle processors waited for:
// nothing known where /proc does not let us look.
func watchWaits(pid int) func() waits {
	w := newWaitWatch(pid)
	over, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		w.watch(over)
	}()
	return func() waits {
		close(over)
		<-ended
		return w.shares()
	}
}

// waitWatch looks at a process.
type waitWatch struct {
	server, self *threads
	listed       time.Time
	weight       waits   // by idle processors
	looks        int     // how many
	idle         float64 // processors, summed over the looks
	err          error
}

func newWaitWatch(pid int) *waitWatch {
	return &waitWatch{server: newThreads(pid), self: newThreads(os.Getpid())}
}

func (w *waitWatch) watch(over <-chan struct{}) {
	defer w.server.close()
	defer w.self.close()
	var load *os.File
	if load, w.err = os.Open("/proc/loadavg"); w.err != nil {
		return
	}
	defer load.Close()
	ticks := time.NewTicker(waitPeriod)
	defer ticks.Stop()
	for w.err == nil {
		select {
		case <-over:
			return
		case <-ticks.C:
			w.err = w.look(load)
		}
	}
}

// shares are what was seen.
func (w *waitWatch) shares() (s waits) {
	sum := 0.0
	for _, x := range w.weight {
		sum += x
	}
	if w.err != nil || sum == 0 {
		return s
	}
	for k, x := range w.weight {
		s[k] = x / sum
	}
	return s
}

// look notes what the idle processors wait for now, if there are any: each counts.
// Of this program's threads only those that run loops are part of the load; the
// others run because of the look: Go's scheduler wakes some whenever a thread wakes.
func (w *waitWatch) look(load io.ReaderAt) error {
	if time.Since(w.listed) > taskPeriod {
		if err := errors.Join(w.server.list(), w.self.list()); err != nil {
			return err
		}
		w.listed = time.Now()
	}
	running, err := runnable(load)
	if err != nil {
		return err
	}
	others := running
	for id, state := range w.self.states() {
		if _, loops := loopThreads.Load(id); state == threadRuns && !loops {
			running--
			others--
		}
	}
	var states []threadState
	for _, state := range w.server.states() {
		states = append(states, state)
		if state == threadRuns {
			others--
		}
	}
	if len(states) == 0 {
		return errors.New("the server has no threads to look at")
	}
	w.looks++
	if idle := float64(runtime.NumCPU() - max(running, 0)); idle > 0 {
		w.idle += idle
		w.weight[reasonFor(states, others > 0)] += idle
	}
	return nil
}

// threads are the threads of a process: for each, what it is in, by its number.
type threads struct {
	dir   string
	files map[string]*os.File
}

func newThreads(pid int) *threads {
	return &threads{dir: fmt.Sprintf("/proc/%d/task", pid), files: map[string]*os.File{}}
}

// list opens what is new.
func (t *threads) list() error {
	tasks, err := os.ReadDir(t.dir)
	if err != nil {
		return err
	}
	for _, task := range tasks {
		id := task.Name()
		if t.files[id] != nil {
			continue
		}
		f, err := os.Open(t.dir + "/" + id + "/syscall")
		if os.IsNotExist(err) {
			continue // ended meanwhile
		}
		if err != nil {
			return err
		}
		t.files[id] = f
	}
	return nil
}

// states goes over what each thread does now. Those that are gone, or may not be
// looked at, are left out.
func (t *threads) states() iter.Seq2[string, threadState] {
	return func(yield func(string, threadState) bool) {
		buf := make([]byte, 256)
		for id, f := range t.files {
			n, _ := f.ReadAt(buf, 0)
			if n == 0 {
				f.Close()
				delete(t.files, id)
			} else if !yield(id, stateOf(buf[:n])) {
				return
			}
		}
	}
}

func (t *threads) close() {
	for _, f := range t.files {
		f.Close()
	}
}

// runnable is how many threads of the machine run or could, as /proc/loadavg says.
func runnable(load io.ReaderAt) (int, error) {
	buf := make([]byte, 128)
	n, err := load.ReadAt(buf, 0)
	if n == 0 {
		return 0, err
	}
	fields := bytes.Fields(buf[:n])
	if len(fields) < 4 {
		return 0, fmt.Errorf("/proc/loadavg: %q", buf[:n])
	}
	running, _, _ := bytes.Cut(fields[3], []byte("/"))
	return strconv.Atoi(string(running))
}

// The system calls in which a thread waits for a disk.
var (
	syncCalls = []int{unix.SYS_FSYNC, unix.SYS_FDATASYNC, unix.SYS_SYNC_FILE_RANGE, unix.SYS_SYNCFS, unix.SYS_MSYNC}
	fileCalls = []int{unix.SYS_READ, unix.SYS_WRITE, unix.SYS_PREAD64, unix.SYS_PWRITE64, unix.SYS_READV, unix.SYS_WRITEV,
		unix.SYS_PREADV, unix.SYS_PWRITEV, unix.SYS_PREADV2, unix.SYS_PWRITEV2, unix.SYS_FALLOCATE, unix.SYS_FTRUNCATE,
		unix.SYS_OPENAT, unix.SYS_UNLINKAT, unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2, unix.SYS_GETDENTS64}
)

// stateOf reads /proc/PID/task/TID/syscall: "running", or the number of the system
// call that the thread waits in, -1 outside of one (a page fault).
func stateOf(text []byte) threadState {
	if bytes.HasPrefix(text, []byte("running")) {
		return threadRuns
	}
	first, _, _ := bytes.Cut(text, []byte(" "))
	number, err := strconv.Atoi(string(bytes.TrimSpace(first)))
	switch {
	case err != nil:
		return threadWaits
	case slices.Contains(syncCalls, number):
		return threadSyncs
	case number < 0 || slices.Contains(fileCalls, number):
		return threadFiles
	}
	return threadWaits
}
