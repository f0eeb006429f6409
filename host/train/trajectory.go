package train

import (
	"github.com/cage-qat/cage/host/engine"
	"github.com/cage-qat/cage/host/metrics"
	"github.com/cage-qat/cage/host/model"
)

// trajectory follows the parameters of a problem, which unlike those of a language
// model can be looked at. It is nil where there is nothing to follow.
type trajectory struct {
	problem *model.Quadratic
	every   int
	points  *metrics.Trajectory // nil when no points are recorded
}

// openTrajectory starts the record of the points of a problem, or goes on with it
// after the steps that are done. The point of the last of these is written again, as it
// may be missing; so a run at its beginning records its start.
func (r *run) openTrajectory() error {
	problem, ok := r.model.(*model.Quadratic)
	if !ok {
		return nil
	}
	r.trajectory = &trajectory{problem: problem, every: r.cfg.Train.TrajectoryEvery}
	if r.trajectory.every == 0 {
		return nil
	}
	after := r.done.Step
	if r.follows() {
		after--
	}
	var err error
	if r.trajectory.points, err = metrics.ResumeTrajectory(r.dir.Trajectory(), after); err != nil {
		return err
	}
	r.warnOfDamage(r.dir.Trajectory(), r.trajectory.points.Damage())
	return r.follow()
}

// follows tells whether the point after the step just done is recorded.
func (r *run) follows() bool {
	return r.done.Step%r.trajectory.every == 0 || r.done.Step == r.cfg.Train.Steps
}

// follow records the point after the step just done, if it is due.
func (r *run) follow() error {
	t := r.trajectory
	if t == nil || t.points == nil || !r.follows() {
		return nil
	}
	return t.record(r.done.Step, r.state.Params[0])
}

func (t *trajectory) record(step int, at *engine.Buffer) error {
	x, err := engine.Download[float32](at)
	if err != nil {
		return err
	}
	return t.points.Write(metrics.Point{Step: step, X: x})
}

// distance is how far the parameters are from the problem's optimum, nil without one.
func (r *run) distance() (*metrics.Number, error) {
	if r.trajectory == nil {
		return nil, nil
	}
	x, err := engine.Download[float32](r.state.Params[0])
	if err != nil {
		return nil, err
	}
	return metrics.Some(r.trajectory.problem.Distance(x)), nil
}

func (t *trajectory) sync() error {
	if t == nil || t.points == nil {
		return nil
	}
	return t.points.Sync()
}

func (t *trajectory) close() error {
	if t == nil || t.points == nil {
		return nil
	}
	return t.points.Close()
}
