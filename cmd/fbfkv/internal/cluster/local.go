package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/fbfkv/fbfkv/cmd/fbfkv/internal/operate"
)

const localHelp = `Runs a cluster on this machine, for trying it out, until Ctrl-C: one server per node, with
its data and its log in DIR. With the same DIR it starts again with the same data.
A cluster on one machine does not survive that machine.`

// local is one run of the command.
type local struct {
	*operator
	count, port, page int
	dir               string
	ended             chan *localNode
}

// localNode is one server.
type localNode struct {
	addr string
	cmd  *exec.Cmd
	log  string        // the path of its log
	done chan struct{} // closed when it has ended
	err  error         // how
}

func localCommand() operate.Subcommand {
	var l local
	return operate.Subcommand{
		Use:   "local --dir DIR [--nodes 3] [--port 7001] [--page-port 9379]",
		Short: "run a cluster on this machine, to try it out", Long: localHelp, Args: cobra.NoArgs,
		Flags: func(cmd *cobra.Command) {
			cmd.Flags().IntVar(&l.count, "nodes", 3, "how many nodes")
			cmd.Flags().IntVar(&l.port, "port", 7001, "the first node's port; the others have the next ones")
			cmd.Flags().IntVar(&l.page, "page-port", 0, "the port of the first node's status page; the "+
				"others have the next ones (default: no pages)")
			cmd.Flags().StringVar(&l.dir, "dir", "", "where the nodes' directories are, made if missing")
			_ = cmd.MarkFlagRequired("dir")
		},
		Run: run(func(o *operator, _ []string) error {
			l.operator = o
			return l.run()
		}),
	}
}

func (l *local) run() (err error) {
	if l.count < 1 || l.port < 1 || l.port+l.count > 55535 || l.page < 0 || l.page+l.count > 65536 {
		return errors.New("--nodes is at least 1, and the ports are up to 55535: the cluster ports are " +
			"10000 higher")
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, os.Interrupt, syscall.SIGTERM)
	l.ended = make(chan *localNode, l.count)
	var running []*localNode
	defer func() { err = errors.Join(err, l.stop(running)) }()
	var addrs []string
	for i := range l.count {
		n, err := l.start(program, i)
		if err != nil {
			return err
		}
		running = append(running, n)
		addrs = append(addrs, n.addr)
	}
	made := make(chan error, 1)
	go func() { made <- l.create(addrs) }()
	for left := l.count; left > 0; {
		select {
		case <-stop:
			return nil
		case err := <-made:
			if err != nil {
				return err
			}
			l.Say("try: redis-cli -c -p %d CINCRBY visits op-1 1", l.port)
			if l.page > 0 {
				l.Say("watch: http://%s/ to %s", l.pageAddress(0), l.pageAddress(l.count-1))
			}
			l.Say("Ctrl-C stops the nodes")
			made = nil
		case n := <-l.ended:
			left--
			l.Say("%s: has ended (%v), its log is %s; it starts again with: %s", n.addr, n.cmd.ProcessState,
				n.log, commandLine(n.cmd))
			if made != nil {
				return fmt.Errorf("%s did not start; its log is %s", n.addr, n.log)
			}
		}
	}
	return errors.New("all nodes have ended")
}

// pageAddress is where the i-th node has its status page.
func (l *local) pageAddress(i int) string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(l.page+i))
}

// start starts the i-th server.
func (l *local) start(program string, i int) (*localNode, error) {
	port := l.port + i
	dir := filepath.Join(l.dir, strconv.Itoa(port))
	if err := os.MkdirAll(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	n := &localNode{done: make(chan struct{}), addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)),
		log: filepath.Join(l.dir, strconv.Itoa(port)+".log")}
	n.cmd = exec.Command(program, "--cluster-enabled", "yes", "--port", strconv.Itoa(port), "--dir", dir,
		"--logfile", n.log)
	if l.page > 0 {
		n.cmd.Args = append(n.cmd.Args, "--metrics-addr", l.pageAddress(i))
	}
	n.cmd.SysProcAttr = apart()
	said, err := os.OpenFile(n.log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer said.Close()
	n.cmd.Stderr = said // what is wrong before there is a log
	if err := n.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		n.err = n.cmd.Wait()
		close(n.done)
		l.ended <- n
	}()
	return n, nil
}

// create makes the cluster unless it exists.
func (l *local) create(addrs []string) error {
	err := l.Wait("the nodes to start", func() (bool, error) {
		for _, a := range l.survey(addrs) {
			if a.err != nil {
				return false, a.err
			}
		}
		return true, nil
	})
	if err != nil {
		return err
	}
	l.Yes = true
	c := creation{operator: l.operator, addrs: addrs}
	if err := c.run(); err != nil {
		return err
	}
	config, err := l.member(addrs[0])
	if err != nil {
		return err
	}
	for _, shard := range config.Shards {
		if _, _, err := l.leader(config, shard.ID); err != nil {
			return err
		}
	}
	return nil
}

// stop ends the servers that run, in an orderly way.
func (l *local) stop(running []*localNode) (err error) {
	running = slices.DeleteFunc(running, func(n *localNode) bool {
		return n.cmd.Process.Signal(syscall.SIGTERM) != nil
	})
	for _, n := range running {
		<-n.done
		// One that was still starting has no handler for the signal yet.
		if state, ok := n.cmd.ProcessState.Sys().(syscall.WaitStatus); n.err != nil &&
			!(ok && state.Signaled() && state.Signal() == syscall.SIGTERM) {
			err = errors.Join(err, fmt.Errorf("%s has ended with %w; its log is %s", n.addr, n.err, n.log))
		}
	}
	return err
}

// commandLine is how a person would start the server.
func commandLine(cmd *exec.Cmd) (line string) {
	for _, arg := range cmd.Args {
		line += " " + arg
	}
	return line[1:]
}
