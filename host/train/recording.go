package train

import (
	"errors"
	"slices"

	"github.com/cage-qat/cage/host/train/checkpoint"
	"github.com/cage-qat/cage/host/train/metrics"
)

// recording is metrics.jsonl, with the records that it could not take yet: a disk that is
// full for an hour does not end a run. They wait in memory, and in checkpoints.
type recording struct {
	file      *metrics.Writer[metrics.Record]
	newest    []metrics.Record // those of the newest step that are in the file
	unwritten []metrics.Record
	show      func(metrics.Record) // is given each record that was written
}

// write appends a record, after those that wait.
func (w *recording) write(rec metrics.Record) error {
	w.unwritten = append(w.unwritten, rec)
	return w.flush()
}

// flush writes the records that wait.
func (w *recording) flush() error {
	for len(w.unwritten) > 0 {
		rec := w.unwritten[0]
		if err := w.file.Write(rec); err != nil {
			return err
		}
		w.wrote(rec)
		w.show(rec)
		w.unwritten = w.unwritten[1:]
	}
	return nil
}

// wrote notes that a record is in the file.
func (w *recording) wrote(rec metrics.Record) {
	if len(w.newest) > 0 && w.newest[0].Step != rec.Step {
		w.newest = nil
	}
	w.newest = append(w.newest, rec)
}

// sync makes all records durable.
func (w *recording) sync() error {
	if err := w.flush(); err != nil {
		return err
	}
	return w.file.Sync()
}

// syncRecords makes the records and the points so far durable, and the texts if it can: they end no training.
func (r *run) syncRecords() error {
	err := r.records.sync()
	if r.trajectory != nil {
		err = errors.Join(err, r.trajectory.Sync())
	}
	if r.samples != nil {
		if err := r.samples.file.Sync(); err != nil {
			r.log.Warn("the texts so far may not be on the disk: training goes on", "step", r.done.Step, "error", err)
		}
	}
	return err
}

// missing are all records from the first step on that has one which is not in the file.
func (w *recording) missing() []metrics.Record {
	if len(w.unwritten) == 0 || len(w.newest) == 0 || w.newest[0].Step != w.unwritten[0].Step {
		return w.unwritten
	}
	return slices.Concat(w.newest, w.unwritten)
}

// record appends a record to metrics.jsonl. Where that is not possible the run goes on,
// and tries again with the next one.
func (r *run) record(rec metrics.Record) error {
	if err := r.checkDirectory(); err != nil {
		r.records.unwritten = append(r.records.unwritten, rec)
		return err
	}
	waiting := len(r.records.unwritten)
	r.noteRecorded(waiting, r.records.write(rec))
	return nil
}

// noteRecorded logs that records could not be written, when many wait not each time, and
// that those that waited are written.
func (r *run) noteRecorded(waited int, err error) {
	n := len(r.records.unwritten)
	switch {
	case err != nil && n&(n-1) == 0:
		r.log.Warn("records could not be written: training goes on, and they wait", "records", n, "error", err)
	case err == nil && waited > 0:
		r.log.Info("the records that waited are written", "records", waited)
	}
}

// missingKey is the entry of a checkpoint's metadata with the records that metrics.jsonl
// lacked, and those of the same step: a run that goes on from there writes them.
const missingKey = "missing_records"

func (r *run) saveMissing(state *checkpoint.State) error {
	list := r.records.missing()
	if len(list) == 0 {
		return nil
	}
	return state.Meta.Set(missingKey, list)
}

// latestKey is the entry of a checkpoint's metadata with the record of its step, where that is
// in no file: an evaluation that is still to be done after the step takes its losses from it.
const latestKey = "latest_record"

func (r *run) saveLatest(state *checkpoint.State) error {
	if latest := r.display.latest; latest.Step == state.Step && !r.logs(state.Step) {
		return state.Meta.Set(latestKey, latest)
	}
	return nil
}

// resumeRecords goes on with metrics.jsonl after the step of the checkpoint with this
// metadata.
func (r *run) resumeRecords(meta checkpoint.Meta) error {
	after := r.done.Step
	var missing []metrics.Record
	if err := meta.GetIf(missingKey, &missing); err != nil {
		return err
	}
	if len(missing) > 0 {
		after = missing[0].Step - 1 // what was written since is written again
	}
	file, err := metrics.Resume[metrics.Record](r.dir.Metrics(), after)
	if err != nil {
		return err
	}
	r.openScalars()
	r.records = &recording{file: file, unwritten: missing, show: r.showRecord}
	r.warnOfDamage(file.Damage())
	r.noteRecorded(len(missing), r.records.flush())
	return nil
}

// remember takes from the records, and from the metadata of the checkpoint, what evaluations
// and the summary of a resumed run need.
func (r *run) remember(meta checkpoint.Meta) error {
	r.records.newest = nil
	for rec, err := range metrics.Each[metrics.Record](r.dir.Metrics()) {
		if err != nil {
			return err
		}
		r.records.wrote(rec)
		r.recall(rec)
	}
	for _, rec := range r.records.unwritten {
		r.recall(rec)
	}
	if _, some := meta[latestKey]; some {
		r.last = metrics.Record{}
	}
	return meta.GetIf(latestKey, &r.last)
}

// recall takes up a record of before, after those of earlier steps.
func (r *run) recall(rec metrics.Record) {
	if rec.ValLoss != nil {
		r.evaluated = rec.Step
		return
	}
	if rec.ErrorNorm2 == nil {
		rec.ErrorNorm2, rec.ErrorRel = r.last.ErrorNorm2, r.last.ErrorRel
	}
	r.last = rec
}
