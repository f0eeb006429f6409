package rundir

import (
	"errors"
	"fmt"

	"github.com/cage-qat/cage/internal/atomicfile"
)

// Request is something that other processes can ask of the process that trains in a run
// directory. It is a file in that directory, which the process removes when it obeys. So
// the request can be made from anywhere that sees the directory, and never reaches
// another process by mistake.
type Request string

// The requests.
const (
	Stop       Request = "stop"       // end gracefully, with a checkpoint, as on Ctrl-C
	Checkpoint Request = "checkpoint" // save a checkpoint after the current step
)

// requestPrefix begins the names of the files.
const requestPrefix = ".ask-"

// ErrNotRunning is returned for a request to a run in which no process trains.
var ErrNotRunning = errors.New("no process trains in it")

// Ask leaves a request. The run's records and state show that it has been obeyed.
func (d Dir) Ask(r Request) error {
	locked, err := d.Lock().Locked()
	if err != nil {
		return err
	}
	if !locked {
		return fmt.Errorf("%s: %w", d.Name, ErrNotRunning)
	}
	return atomicfile.WriteBytes(d.Join(requestPrefix+string(r)), nil)
}

// Take reports whether there is a request, and removes it. It is for the process that
// holds the lock. A request that cannot be removed is ignored, since it would never end.
func (d Dir) Take(r Request) bool { return d.Join(requestPrefix+string(r)).Remove() == nil }
