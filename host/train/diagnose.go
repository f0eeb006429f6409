package train

import (
	"errors"
	"fmt"

	"github.com/cage-qat/cage/host/cage"
	"github.com/cage-qat/cage/host/model/safetensors"
	"github.com/cage-qat/cage/host/train/checkpoint"
	"github.com/cage-qat/cage/host/train/metrics"
	"github.com/cage-qat/cage/host/train/step"
)

// movement tracks the codes of the quantized weights. It is nil if diagnostics are off or no weight
// is quantized.
type movement struct {
	settings cage.Diagnostics
	weights  []string // those with sampled coordinates
	reader   *step.CodeReader
	tracker  *cage.Tracker

	codes     []int32 // the newest sample
	residuals []float32
}

func (r *run) prepareMovement() error {
	m := &movement{settings: r.cfg.Diagnostics}
	m.settings.Tensors = false // unrelated to samples
	if m.settings.Every == 0 {
		return nil
	}
	var names []string
	var sizes, groups []int
	for _, p := range r.model.Params() {
		if _, ok := r.Programs.Weights[p.Name]; ok {
			names, sizes = append(names, p.Name), append(sizes, p.Size())
		}
	}
	var chosen []step.WeightElements
	all := cage.ChooseCoordinates(uint64(m.settings.Seed), m.settings.Coordinates, sizes...)
	for i, positions := range all {
		if len(positions) > 0 {
			chosen = append(chosen, step.WeightElements{Weight: names[i], Positions: positions})
			m.weights, groups = append(m.weights, names[i]), append(groups, len(positions))
		}
	}
	if len(chosen) == 0 {
		return nil
	}
	if needed := m.settings.Every * m.settings.Window; needed > r.cfg.Train.Steps {
		r.log.Warn("the run is too short to record the coherence of residuals: "+
			"a window takes diagnostics.every × diagnostics.window steps",
			"steps", r.cfg.Train.Steps, "window", needed)
	}
	m.tracker = cage.NewTracker(m.settings.Window, groups...)
	var err error
	if m.reader, err = r.Compiled.CodeReader(chosen); err != nil {
		return err
	}
	r.movement = m
	return nil
}

func (m *movement) close() {
	if m != nil {
		m.reader.Close()
	}
}

func (m *movement) due(t int) bool { return m != nil && t%m.settings.Every == 0 }

// read takes the sample of step t, if one is due, before the step changes the weights. The sample
// also counts if the step is then skipped because of its loss.
func (m *movement) read(t int, s *step.State) (err error) {
	if !m.due(t) {
		return nil
	}
	if m.codes, m.residuals, err = m.reader.Read(s); err != nil {
		return fmt.Errorf("reading the codes of weights: %w", err)
	}
	return nil
}

func (m *movement) record(rec *metrics.Record) {
	if !m.due(rec.Step) {
		return
	}
	m.tracker.Add(m.codes, m.residuals)
	if m.tracker.Samples() < 2 {
		return // nothing can have moved
	}
	steps := func(samples float64) *metrics.Number {
		return metrics.Some(samples * float64(m.settings.Every))
	}
	all, each := m.tracker.Measure()
	dwell := all.Dwell
	rec.FlipRate, rec.Visits = metrics.Some(all.FlipRate), metrics.Some(all.Visits)
	rec.DwellMean, rec.DwellMax = steps(dwell.Mean()), steps(float64(dwell.Max()))
	rec.DwellMedian = steps(float64(dwell.Quantile(0.5)))
	rec.DwellP90 = steps(float64(dwell.Quantile(0.9)))
	rec.DwellVectorMean = steps(all.VectorDwell.Mean())
	rec.VisitSum, rec.ResidualMax = metrics.Some(all.VisitSum), metrics.Some(all.Residual)
	rec.Coherence, rec.CoherenceVector = m.coherence(all)
	rec.Weights = map[string]metrics.WeightMeasures{}
	for i, name := range m.weights {
		w := metrics.WeightMeasures{
			FlipRate: metrics.Some(each[i].FlipRate), DwellMean: steps(each[i].Dwell.Mean())}
		w.Coherence, w.CoherenceVector = m.coherence(each[i])
		rec.Weights[name] = w
	}
}

// coherence returns the two coherences, or nil until the window is full: before that they are too
// large, because they sum fewer residuals.
func (m *movement) coherence(v cage.Measures) (coordinates, vector *metrics.Number) {
	if !m.tracker.Full() {
		return nil, nil
	}
	return metrics.Some(v.Coherence), metrics.Some(v.VectorCoherence)
}

// Names of a movement's metadata entry and tensors in a checkpoint.
const (
	movementMeta   = "diagnostics"
	movementPrefix = "diagnostics/"
)

// savedMovement describes the tensors in a checkpoint, which are invalid under other settings.
type savedMovement struct {
	Settings cage.Diagnostics
	Samples  int
}

func (m *movement) save(state *checkpoint.State) error {
	if m == nil || m.tracker.Samples() == 0 {
		return nil
	}
	s := m.tracker.State()
	n := m.tracker.Coordinates()
	if err := state.Meta.Set(movementMeta, savedMovement{m.settings, s.Samples}); err != nil {
		return err
	}
	rows := len(s.Codes) / n
	return errors.Join(
		addTensor(state, "codes", s.Codes, rows, n), addTensor(state, "residuals", s.Residuals, rows, n),
		addTensor(state, "begun", s.Begun, n), addTensor(state, "since", s.Since, n),
		addTensor(state, "group_since", s.GroupSince, len(s.GroupSince)),
		addTensor(state, "before", s.Before, n),
	)
}

func addTensor[T safetensors.Element](state *checkpoint.State, name string, values []T,
	dims ...int) error {
	t, err := safetensors.New(movementPrefix+name, dims, values)
	state.Tensors = append(state.Tensors, t)
	return err
}

// restoreMovement restores the tracker from a checkpoint. The tracker stays empty if the checkpoint
// has no diagnostics or was written with other settings.
func (r *run) restoreMovement(f *checkpoint.File) error {
	m := r.movement
	if m == nil {
		return nil
	}
	var saved savedMovement
	if err := f.Meta.GetIf(movementMeta, &saved); err != nil {
		return err
	}
	if saved.Settings != m.settings {
		if f.Step >= m.settings.Every {
			r.log.Warn("the checkpoint has no samples taken with these [diagnostics] settings: "+
				"sampling starts again", "step", f.Step)
		}
		return nil
	}
	s := cage.TrackerState{Samples: saved.Samples}
	err := errors.Join(
		values(f, "codes", &s.Codes), values(f, "residuals", &s.Residuals),
		values(f, "begun", &s.Begun), values(f, "since", &s.Since),
		values(f, "group_since", &s.GroupSince), values(f, "before", &s.Before),
	)
	if err != nil {
		return err
	}
	return m.tracker.Restore(s)
}

func values[T safetensors.Element](f *checkpoint.File, name string, into *[]T) error {
	t, err := f.Tensor(movementPrefix + name)
	if err == nil {
		*into, err = safetensors.Values[T](t)
	}
	return err
}
