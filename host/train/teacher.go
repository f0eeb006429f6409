package train

import (
	"fmt"
	"os"
	"slices"

	"github.com/cage-qat/cage/host/train/assembly"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/host/train/step"
)

// The weights of a teacher are read whenever a run begins or goes on, and are in no checkpoint. Its provenance has their
// digests, so that it goes on with the same teacher or not at all.

// loadTeacher loads the teacher of the run, if it has one. A run that begins with the weights of its teacher has them
// already; all others are read, and compared with those that the run has had.
func (r *run) loadTeacher() error {
	d := r.Compiled.Plan().Distillation
	if d == nil {
		return nil
	}
	if r.state != nil && r.cfg.Train.Distillation.Teacher == config.TeacherInitial {
		r.teacher = r.initial
		return r.Compiled.LoadTeacher(r.loadStored())
	}
	fail := func(err error) error { return r.cfg.ErrorAt("train.distillation.teacher", "%w", err) }
	s, err := assembly.TeacherSettings(r.cfg)
	if err != nil {
		return err
	}
	found, err := r.findTeacher()
	if err != nil {
		return err
	}
	from, err := r.readWeights(found, s, d.Teacher, r.Compiled.LoadTeacher)
	if err != nil {
		return fail(err)
	}
	if r.teacher != nil && !slices.Equal(r.teacher.Digests(), from.Digests()) {
		return fail(fmt.Errorf("%s holds other weights than those of the teacher that the run has (%s): it cannot go on with them", from.Path, r.teacher))
	}
	r.teacher = from
	r.log.Info("learning what a teacher predicts", "path", from.Path, "step", from.Step)
	return nil
}

// loadStored loads tensors from the state of the run.
func (r *run) loadStored() step.LoadFunc {
	tensors := map[string]step.Stored{}
	for _, x := range r.Compiled.Stored(r.state) {
		tensors[x.Name] = x
	}
	return func(name string) (step.Tensor, error) {
		x, ok := tensors[name]
		if !ok {
			return step.Tensor{}, fmt.Errorf("the state has no %s", name)
		}
		data, err := x.Read()
		return step.Tensor{Name: name, Dims: x.Dims, Data: data}, err
	}
}

// findTeacher finds the weights of the teacher.
func (r *run) findTeacher() (*config.Initial, error) {
	if r.cfg.Train.Distillation.Teacher == config.TeacherInitial {
		return r.findInitial()
	}
	found, err := config.ReadInitial(r.cfg.TeacherDir(), r.cfg.Model.Context)
	if err != nil {
		return nil, r.cfg.ErrorAt("train.distillation.teacher", "%w", err)
	}
	return found, nil
}

// findWeights replaces the directories of weights that a run reads, in a configuration that is being changed, by those
// where they are now. One that is found nowhere is reported when it is read, if it is.
func findWeights(cfg *config.Config, search rundir.Search) {
	for _, dir := range []*string{&cfg.Init, &cfg.Train.Distillation.Teacher} {
		if *dir == "" || *dir == config.TeacherInitial {
			continue
		}
		place, err := search.Find(*dir, func(place string) error {
			_, err := os.Stat(place)
			return err
		})
		if err == nil {
			*dir = place
		}
	}
}
