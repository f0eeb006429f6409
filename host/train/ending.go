package train

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/cage-qat/cage/host/metrics"
)

// reopen removes the summary of a run that goes on: it says how the run ended, and tells
// nothing of one that is killed from here on.
func (r *run) reopen() error {
	if r.done.Step >= r.cfg.Train.Steps {
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

// recordError writes into the summary with what the run ended, so that others need not
// have seen its messages. What cannot be written is in the messages all the same.
func (r *run) recordError(err error) {
	if errors.Is(err, ErrReplaced) || r.checkDirectory() != nil {
		return // the directory is another run's
	}
	s := Summary{Dir: r.cfg.Train.Out, Method: r.cfg.Method.Name, Form: r.cfg.Method.Form, Lambda: r.cfg.Method.Lambda, Silence: r.cfg.Method.Silence}
	s.Summary = metrics.Summary{
		Name: filepath.Base(r.cfg.Train.Out), Stopped: metrics.Failed, Error: err.Error(),
		Steps: r.done.Step, TotalSteps: r.cfg.Train.Steps, Tokens: r.done.Tokens, Seconds: metrics.Number(r.done.Seconds), Skipped: r.done.Skipped,
	}
	if errors.Is(err, ErrNotFinite) {
		s.Stopped = metrics.Diverged
	}
	if err := metrics.WriteSummary(r.dir.Summary(), s); err != nil {
		r.log.Warn("how the run ended could not be written to its summary", "error", err)
	}
}
