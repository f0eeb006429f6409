package train

import (
	"time"

	"github.com/cage-qat/cage/host/train/metrics"
	"github.com/cage-qat/cage/host/train/tensorboard"
)

// openScalars starts an event file for the records from now on, where train.tensorboard asks for it. metrics.jsonl has all
// that event files show, so that a run goes on without them.
func (r *run) openScalars() {
	if !r.cfg.Train.TensorBoard {
		return
	}
	now := time.Now()
	w, err := tensorboard.Create(r.dir.TensorBoard(), r.done.Step, now)
	if err == nil {
		r.scalars = w
		var toml []byte
		if toml, err = r.cfg.Encode(); err == nil {
			err = tensorboard.Configuration(w, string(toml), now)
		}
	}
	r.noteScalars(err)
}

// showRecord writes the numbers of a record to the event file.
func (r *run) showRecord(rec metrics.Record) {
	if r.scalars != nil {
		r.noteScalars(r.scalars.Scalars(rec.Step, time.Now(), tensorboard.Of(rec)))
	}
}

// noteScalars ends the event file at its first error.
func (r *run) noteScalars(err error) {
	if err == nil {
		return
	}
	r.log.Warn("the records for TensorBoard end here: cage runs export makes them again from metrics.jsonl", "error", err)
	r.closeScalars()
}

func (r *run) closeScalars() {
	if r.scalars == nil {
		return
	}
	if err := r.scalars.Close(); err != nil {
		r.log.Warn("the records for TensorBoard could not be closed", "error", err)
	}
	r.scalars = nil
}
