package rundir

import (
	"errors"
	"fmt"

	"github.com/cage-qat/cage/internal/atomicfile"
)

// Request is what others can ask of the process that trains in a run directory. It is a
// file there, which that process takes away when it obeys, so that it may be asked from
// anywhere that sees the directory, and no other process can be met by mistake.
type Request string

// The requests.
const (
	Stop       Request = "stop"       // end in order, with a checkpoint, as on Ctrl-C
	Checkpoint Request = "checkpoint" // save a checkpoint after the step under way
)

// requestPrefix begins the names of the files.
const requestPrefix = ".ask-"

// ErrNotRunning is returned for a request to a run in which no process trains.
var ErrNotRunning = errors.New("no process trains in it")

// Ask leaves a request. That it is obeyed is seen in the run's records and state.
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

// Take tells whether there is a request, and takes it away. It is for the process that
// holds the lock. One that cannot be taken away does not count: it would never end.
func (d Dir) Take(r Request) bool { return d.Join(requestPrefix+string(r)).Remove() == nil }
