package train

import (
	"errors"
	"fmt"
	"time"

	"github.com/cage-qat/cage/host/train/provenance"
)

// errData is wrapped by the error of a run whose data is not intact.
var errData = errors.New("nothing was saved")

// damagedData is the error of a run whose data is not intact.
func damagedData(err error) error {
	return fmt.Errorf("%w; %w: put the file in order and begin the run again, or resume it", err, errData)
}

// patience is how long the verification is waited for before a message says so.
const patience = 2 * time.Second

// awaitData returns when the data of the run is known to be intact and the provenance
// says so.
func (r *run) awaitData() error {
	if r.verification == nil || r.verified != nil {
		return nil
	}
	slow := time.AfterFunc(patience, func() { r.log.Info("waiting until the token files are verified: nothing is saved before") })
	defer slow.Stop()
	if err := r.verification.Wait(); err != nil {
		return damagedData(err)
	}
	r.verified = provenance.Describe(r.data.Train, r.data.Validation)
	err := r.writeProvenance()
	if err != nil {
		r.verified = nil // so that it is written with the next checkpoint
	}
	return err
}
