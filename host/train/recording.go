package train

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/host/model/generate"
	"github.com/cage-qat/cage/host/train/build"
	"github.com/cage-qat/cage/host/train/checkpoint"
	"github.com/cage-qat/cage/host/train/metrics"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/internal/safetext"
)

// recording writes metrics.jsonl. A failed write, for example to a full disk, does not end the run:
// the unwritten records are kept in memory and in checkpoints.
type recording struct {
	file      *metrics.Writer[metrics.Record]
	newest    []metrics.Record // records in the file that have the newest step
	unwritten []metrics.Record
	show      func(metrics.Record) // called with each record that was written
}

func (w *recording) write(rec metrics.Record) error {
	w.unwritten = append(w.unwritten, rec)
	return w.flush()
}

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

func (w *recording) wrote(rec metrics.Record) {
	if len(w.newest) > 0 && w.newest[0].Step != rec.Step {
		w.newest = nil
	}
	w.newest = append(w.newest, rec)
}

func (r *run) syncRecords() error {
	err := r.records.flush()
	if err == nil {
		err = r.records.file.Sync()
	}
	if r.trajectory != nil {
		err = errors.Join(err, r.trajectory.Sync())
	}
	if r.samples != nil {
		if err := r.samples.file.Sync(); err != nil {
			r.log.Warn("samples may not be on disk: training continues",
				"step", r.done.Step, "error", err)
		}
	}
	return err
}

// missing returns the records, also written ones, from the first step with an unwritten record on.
func (w *recording) missing() []metrics.Record {
	if len(w.unwritten) == 0 || len(w.newest) == 0 || w.newest[0].Step != w.unwritten[0].Step {
		return w.unwritten
	}
	return slices.Concat(w.newest, w.unwritten)
}

func (r *run) record(rec metrics.Record) error {
	if r.follows() {
		return nil
	}
	if err := r.checkDirectory(); err != nil {
		r.records.unwritten = append(r.records.unwritten, rec)
		return err
	}
	waiting := len(r.records.unwritten)
	r.noteRecorded(waiting, r.records.write(rec))
	return nil
}

// noteRecorded logs failed writes when 1, 2, 4, 8, … records are unwritten, and a later success.
func (r *run) noteRecorded(waited int, err error) {
	n := len(r.records.unwritten)
	switch {
	case err != nil && n&(n-1) == 0:
		r.log.Warn("records could not be written: training continues, and writing is retried",
			"records", n, "error", err)
	case err == nil && waited > 0:
		r.log.Info("the unwritten records have now been written", "records", waited)
	}
}

// missingKey is the checkpoint metadata entry with the records that metrics.jsonl lacked, and any
// written ones of the same step. A run that resumes from the checkpoint writes them.
const missingKey = "missing_records"

// latestKey is the checkpoint metadata entry with the record of the checkpoint's step, if that was
// not due for metrics.jsonl. An evaluation still pending after that step reads losses from it.
const latestKey = "latest_record"

// resumeRecords continues metrics.jsonl after the step of the checkpoint with this metadata.
func (r *run) resumeRecords(meta checkpoint.Meta) error {
	after := r.done.Step
	var missing []metrics.Record
	if err := meta.GetIf(missingKey, &missing); err != nil {
		return err
	}
	if len(missing) > 0 {
		after = missing[0].Step - 1 // later records in the file are written again
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

// restoreRecords restores the values that the evaluations and the summary of a resumed run need.
func (r *run) restoreRecords(meta checkpoint.Meta) error {
	r.records.newest = nil
	for rec, err := range metrics.Each[metrics.Record](r.dir.Metrics()) {
		if err != nil {
			return err
		}
		r.records.wrote(rec)
		r.restoreRecord(rec)
	}
	for _, rec := range r.records.unwritten {
		r.restoreRecord(rec)
	}
	if _, some := meta[latestKey]; some {
		r.last = metrics.Record{}
	}
	return meta.GetIf(latestKey, &r.last)
}

// restoreRecord restores one record; it is called in the order of steps.
func (r *run) restoreRecord(rec metrics.Record) {
	if rec.ValLoss != nil {
		r.evaluated = rec.Step
		return
	}
	if rec.ErrorNorm2 == nil {
		rec.ErrorNorm2, rec.ErrorRel = r.last.ErrorNorm2, r.last.ErrorRel
	}
	r.last = rec
}

func (r *run) openScalars() {
	if !r.cfg.Train.TensorBoard {
		return
	}
	var err error
	r.scalars, err = metrics.CreateEvents(r.dir.TensorBoard(), r.done.Step, time.Now())
	r.noteScalars(err)
}

func (r *run) showRecord(rec metrics.Record) {
	if r.scalars != nil {
		r.noteScalars(r.scalars.Write(rec, time.Now()))
	}
}

func (r *run) noteScalars(err error) {
	if err == nil {
		return
	}
	r.log.Warn("event files for TensorBoard end here; metrics.jsonl has all records", "error", err)
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

// openTrajectory starts or resumes recording the points of a problem. It writes the current point
// again, as the file may lack it; in a new run, that is the starting point.
func (r *run) openTrajectory() error {
	r.problem, _ = r.model.(*model.Quadratic)
	if r.problem == nil || r.cfg.Train.TrajectoryEvery == 0 {
		return nil
	}
	after := r.done.Step
	if r.pointDue() {
		after--
	}
	var err error
	if r.trajectory, err = metrics.Resume[metrics.Point](r.dir.Trajectory(), after); err != nil {
		return err
	}
	r.warnOfDamage(r.trajectory.Damage())
	return r.recordPoint()
}

func (r *run) pointDue() bool {
	return r.done.Step%r.cfg.Train.TrajectoryEvery == 0 || r.done.Step == r.cfg.Train.Steps
}

// recordPoint records the point after the last step, if one is due. Unlike a failed write of
// records, a failure here ends the run: runs of problems without data are short.
func (r *run) recordPoint() error {
	if r.trajectory == nil || !r.pointDue() {
		return nil
	}
	x, err := r.point()
	if err != nil {
		return err
	}
	return r.trajectory.Write(metrics.Point{Step: r.done.Step, X: x})
}

func (r *run) point() ([]float32, error) {
	if r.problem == nil {
		return nil, nil
	}
	return engine.Download[float32](r.state.Param(r.model.Params()[0].Name))
}

func (r *run) distance() (*metrics.Number, error) {
	x, err := r.point()
	if x == nil || err != nil {
		return nil, err
	}
	return metrics.Some(r.problem.Distance(x)), nil
}

// samples holds the prompts of train.samples, and the file of the model's continuations.
type samples struct {
	tokenizer tokenizer.Tokenizer
	ids       [][]int32
	file      *metrics.Writer[metrics.Sample] // nil until there is a run directory
}

// openTokenizer opens the tokenizer of the data if it is available, otherwise the copy in the
// directory of the resumed run. Both have the same hash.
func (r *run) openTokenizer() (tokenizer.Tokenizer, error) {
	info := r.data.Train.Tokenizer()
	if content, err := r.data.Definition(r.cfg); err == nil {
		return tokenizer.Restore(content, info)
	}
	return build.FindTokenizer(r.cfg, rundir.Search{Run: r.dir.Name}, info)
}

func (r *run) openSamples() error {
	if r.samples == nil {
		return nil
	}
	after := r.done.Step
	if r.evaluated < after { // the evaluation after this step is repeated, with its texts
		after--
	}
	file, err := metrics.Resume[metrics.Sample](r.dir.Samples(), after)
	if err != nil {
		return err
	}
	r.warnOfDamage(file.Damage())
	r.samples.file = file
	return nil
}

// sample continues the prompts of train.samples, and writes the texts unless ctx ends first. It
// fails only if the run directory was removed or replaced; other errors are logged.
func (r *run) sample(ctx context.Context) (written bool, err error) {
	if r.samples == nil {
		return true, nil
	}
	texts, err := r.continuations(ctx)
	if ctx.Err() != nil {
		return false, nil // the resumed run samples
	}
	if gone := r.checkDirectory(); gone != nil {
		return false, gone
	}
	if err == nil {
		err = r.samples.file.Write(metrics.Sample{Step: r.done.Step, Texts: texts})
	}
	if err != nil {
		r.log.Warn("samples of this step could not be made: training continues",
			"step", r.done.Step, "error", err)
	}
	return true, nil
}

func (r *run) continuations(ctx context.Context) ([]metrics.Text, error) {
	e, err := r.Compiled.Evaluator(r.state)
	if err != nil {
		return nil, err
	}
	defer e.Close()
	t, tok := r.cfg.Train, r.samples.tokenizer
	files := map[string][]byte{}
	if err := rundir.ReadFiles(files, r.dir.Path, tokenizer.CompanionFiles); err != nil {
		return nil, err
	}
	ends := tokenizer.Ends(tok, r.opts.EndOfTurn(files, tok))
	next, err := generate.Continue(ctx, e, r.samples.ids, generate.Options{
		Tokens: t.SampleTokens, Temperature: t.SampleTemperature, Seed: uint64(r.cfg.Seed),
		Stop: slices.Concat(r.initial.Ends(), ends), Vocab: tok.Info().VocabSize,
	}, nil)
	if err != nil {
		return nil, err
	}
	var texts []metrics.Text
	for i, ids := range next {
		text, err := generate.Following(tok, generate.LastOf(t.Samples[i], r.samples.ids[i]), ids)
		if err != nil {
			return nil, err
		}
		texts = append(texts, metrics.Text{Prompt: t.Samples[i], Text: safetext.Valid(text)})
	}
	return texts, nil
}
