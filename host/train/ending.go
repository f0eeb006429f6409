package train

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/cage-qat/cage/host/train/metrics"
)

// reopen removes the summary of a run that goes on: it says how the run ended before, and
// would still say so if the process were killed from here on. That of a finished run stays
// until there is another complete one.
func (r *run) reopen() error {
	if r.done.Step >= r.cfg.Train.Steps {
		s, err := metrics.ReadSummary(r.dir.Summary())
		r.summarized = err == nil && s.Completed
		return nil
	}
	err := r.dir.Summary().Remove()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = r.dir.SyncDir()
	}
	if err != nil {
		return fmt.Errorf("remove the summary of the run so far: %w", err)
	}
	return nil
}

// recordError writes the error with which the run ended into its summary, for those who
// have not seen the messages. If that fails, the error is in the messages all the same.
func (r *run) recordError(err error) {
	if errors.Is(err, ErrReplaced) || r.checkDirectory() != nil {
		return // the directory is another run's
	}
	if r.summarized {
		return
	}
	s := r.summary()
	s.Stopped, s.Error = metrics.Failed, err.Error()
	if errors.Is(err, ErrNotFinite) {
		s.Stopped = metrics.Diverged
	}
	if err := metrics.WriteSummary(r.dir.Summary(), *s); err != nil {
		r.log.Warn("how the run ended could not be written to its summary", "error", err)
	}
}
