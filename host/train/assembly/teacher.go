package assembly

import (
	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/step"
)

// TeacherSettings returns the settings of the model whose predictions a run learns; there must be one. The weights are
// not read.
func TeacherSettings(cfg *config.Config) (architecture.Settings, error) {
	if cfg.Train.Distillation.Teacher == config.TeacherInitial {
		return cfg.Model, nil
	}
	found, err := config.ReadInitial(cfg.TeacherDir(), cfg.Model.Context)
	if err != nil {
		return architecture.Settings{}, teacherError(cfg, "%w", err)
	}
	s := found.Settings
	if s.Vocab != cfg.Model.Vocab {
		return s, teacherError(cfg, "the teacher in %s has a vocabulary of %d, the model one of %d: both need the same tokens", found.Dir, s.Vocab, cfg.Model.Vocab)
	}
	if found.MaxPositions > 0 && cfg.Model.Context > found.MaxPositions {
		return s, teacherError(cfg, "the teacher in %s has %d positions, model.context is %d", found.Dir, found.MaxPositions, cfg.Model.Context)
	}
	s.Context = cfg.Model.Context
	return s, nil
}

func teacherError(cfg *config.Config, format string, args ...any) error {
	return cfg.ErrorAt("train.distillation.teacher", format, args...)
}

// distillation is what a run learns of a teacher, nil without one.
func distillation(cfg *config.Config) (*step.Distillation, error) {
	d := cfg.Train.Distillation
	if d.Teacher == "" {
		return nil, nil
	}
	s, err := TeacherSettings(cfg)
	if err != nil {
		return nil, err
	}
	m, err := model.New(s, model.Options{Documents: cfg.Data.Separate()})
	if err != nil {
		return nil, teacherError(cfg, "%w", err)
	}
	return &step.Distillation{Distillation: model.Distillation{Beta: d.Beta, Temperature: d.Temperature, Weight: d.Weight}, Teacher: m.(model.Language)}, nil
}
