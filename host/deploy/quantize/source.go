package quantize

import (
	"fmt"
	"path/filepath"

	"github.com/cage-qat/cage/host/data/dataset"
	"github.com/cage-qat/cage/host/deploy/trained"
	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/host/model/huggingface"
	"github.com/cage-qat/cage/host/train/build"
	"github.com/cage-qat/cage/host/train/checkpoint"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/provenance"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/host/train/step"
	"github.com/cage-qat/cage/internal/vfs"
)

// source is a model to be quantized: its metadata, and its weights, which are read one at a time.
type source struct {
	*trained.Source
	origin *provenance.Origin
	load   step.LoadFunc
}

func withSource(dir string, o Options, use func(*source) error) error {
	from, err := trained.OpenSource(dir, o.Out, o.Step, o.Context, o.Logger)
	if err != nil {
		return err
	}
	defer from.Close()
	if after := from.Config.Quantizer.After; after > 0 && from.Step <= after {
		return fmt.Errorf("%s: its quantizers change after step %d: only later checkpoints can be "+
			"quantized", dir, after)
	}
	if from.Record.Posttrained != nil {
		return fmt.Errorf("%s has already been quantized after training: quantize the run that it was "+
			"made from", dir)
	}
	return from.Use(func(load step.LoadFunc, f *checkpoint.File) error {
		origin, err := originOf(from, f)
		if err != nil {
			return err
		}
		return use(&source{from, origin, load})
	})
}

// originOf describes the files of a model; f is the checkpoint of a run.
func originOf(from *trained.Source, f *checkpoint.File) (*provenance.Origin, error) {
	if from.Hub != nil {
		return provenance.HubOrigin(vfs.At(from.Dir), from.Hub)
	}
	path, err := filepath.Abs(from.Dir)
	file := filepath.Join(rundir.At(from.Dir).Checkpoints().Base(), checkpoint.FileName(f.Step))
	return &provenance.Origin{Path: path, Run: from.Record.Run, Step: f.Step,
		End:   from.Record.Initial.Ends(),
		Files: []huggingface.Part{{File: file, SHA256: f.Digest()}}}, err
}

func (s *source) values(param string) ([]float32, error) {
	t, err := s.load(step.ParamName(param))
	return t.Data, err
}

// texts reads the calibration texts into run, and describes them; it returns nil if none is wanted.
func (s *source) texts(o Options, run *Blocks) (*trained.Calibration, error) {
	if o.Windows == 0 {
		return nil, nil
	}
	file, err := s.openTexts(o)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	kind := build.KindOf(file)
	cfg, _ := s.Config.Changed(func(cfg *config.Config) error {
		cfg.Data.SetKind(kind)
		return nil
	})
	run.Sequences, run.Segments, err = build.Windows(cfg, file, o.Windows, uint64(o.Seed))
	if err != nil {
		return nil, err
	}
	c := &trained.Calibration{Path: file.Path(), SHA256: file.SHA256(), Kind: kind,
		Separate: run.Segments != nil, Windows: len(run.Sequences), Context: run.Context,
		Seed: o.Seed, Tokens: int64(len(run.Sequences) * run.Context)}
	for _, list := range run.Segments {
		for _, s := range list {
			if s == model.Padding {
				c.Tokens--
			}
		}
	}
	if c.Windows < o.Windows {
		o.Logger.Warn("there are fewer calibration sequences than requested",
			"file", c.Path, "sequences", c.Windows, "wanted", o.Windows)
	}
	return c, nil
}

func (s *source) openTexts(o Options) (*dataset.File, error) {
	const hint = "name a token file or a chat file to calibrate with, with --data"
	if o.Data != "" {
		return s.OpenData(o.Data, o.Logger)
	}
	if s.Config.Untrained() {
		return nil, fmt.Errorf("%s has no training set: %s; rounding to nearest needs none: "+
			"use --windows 0", s.Dir, hint)
	}
	file, _, err := build.FindTrain(s.Config, s.Search)
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", err, hint)
	}
	return file, nil
}
