package bench

import (
	"errors"
	"time"
)

// usage is the processor time used so far, in seconds, and when that was.
type usage struct {
	at             time.Time
	server, kernel float64 // by the server, and of it in the kernel
	generator      float64 // by this program
	machine        machineTime
}

// usageOf reads all clocks. Without a server on this machine its times are 0.
func usageOf(p *process) (u usage, err error) {
	if p != nil {
		if u.server, u.kernel, err = p.cpu(); err != nil {
			return u, err
		}
	}
	var err2 error
	u.machine, err2 = machine()
	u.at, u.generator = time.Now(), cpuSeconds()
	return u, errors.Join(err, err2)
}

// since is what was used from an earlier usage on; at becomes meaningless.
func (u usage) since(before usage) usage {
	return usage{server: u.server - before.server, kernel: u.kernel - before.kernel, generator: u.generator - before.generator,
		machine: u.machine.since(before.machine)}
}

// elsewhere is the share of the machine's processor time that neither the server nor
// this program used, and that was not idle.
func (u usage) elsewhere() float64 {
	return max(0, divide(u.machine.all-u.machine.idle-u.server-u.generator, u.machine.all))
}
