package train

import (
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/host/train/metrics"
)

// openTrajectory starts the record of the points of a problem, whose parameters unlike
// those of a language model can be looked at, or goes on with it after the steps that are
// done. The point of the last of these is written again, as it may be missing; so a run at
// its beginning records its start.
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

// pointDue tells whether the point after the step just done is recorded.
func (r *run) pointDue() bool {
	return r.done.Step%r.cfg.Train.TrajectoryEvery == 0 || r.done.Step == r.cfg.Train.Steps
}

// recordPoint records the point after the step just done, if it is due. Unlike records, points do not wait for a disk that
// is full: a problem is small enough to end, and to go on from its last step.
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

// point is where the parameters of a problem are.
func (r *run) point() ([]float32, error) {
	return engine.Download[float32](r.state.Param(r.model.Params()[0].Name))
}

// distance is how far the parameters are from the problem's optimum, nil without one.
func (r *run) distance() (*metrics.Number, error) {
	if r.problem == nil {
		return nil, nil
	}
	x, err := r.point()
	if err != nil {
		return nil, err
	}
	return metrics.Some(r.problem.Distance(x)), nil
}
