package quantize

import (
	"errors"
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
	dir    string
	cfg    *config.Config
	search rundir.Search
	record *trained.Record // record of a run; for a Hugging Face checkpoint, only its tokenizer
	origin *provenance.Origin
	values func(param string) ([]float32, error)
	// readInput reads trained parameters and states of the run's quantizers; nil if there are none.
	readInput InputReader
}

func withSource(dir string, o Options, use func(*source) error) error {
	if trained.IsHub(dir) {
		return withHubSource(dir, o, use)
	}
	if o.Context > 0 {
		return fmt.Errorf("%s: the context of a run is fixed: leave --context out", dir)
	}
	cfg, err := rundir.At(dir).LoadConfig()
	if err != nil {
		return fmt.Errorf("%w%s", err, huggingface.Hint(dir))
	}
	if err := trained.CheckSaved(dir, o.Step); err != nil {
		return err
	}
	if o.Step, err = checkpoint.Chosen(rundir.At(dir).Checkpoints(), o.Step); err != nil {
		return err
	}
	if after := cfg.Quantizer.After; after > 0 && o.Step <= after {
		return fmt.Errorf("%s: its quantizers change after step %d: only later checkpoints can be "+
			"quantized", dir, after)
	}
	record, err := trained.ReadRecord(rundir.At(dir))
	if err != nil {
		return err
	}
	if record.Posttrained != nil {
		return fmt.Errorf("%s has already been quantized after training: quantize the run that it was "+
			"made from", dir)
	}
	search := rundir.Search{Run: dir, WorkDir: record.Directory}
	s := &source{dir: dir, cfg: cfg, record: record, search: search}
	from := func(f *checkpoint.File) error {
		return provenance.UseWeights(rundir.At(dir), &record.Record, f, func(load step.LoadFunc) error {
			if err := s.openCheckpoint(f, load); err != nil {
				return err
			}
			return use(s)
		})
	}
	return checkpoint.Use(rundir.At(dir).Checkpoints(), o.Step, from)
}

func (s *source) openCheckpoint(f *checkpoint.File, load step.LoadFunc) error {
	run := rundir.At(s.dir)
	if err := s.record.CheckOwner(run, f.Step, f.Meta); err != nil {
		return err
	}
	path, err := filepath.Abs(s.dir)
	if err != nil {
		return err
	}
	file := filepath.Join(run.Checkpoints().Base(), checkpoint.FileName(f.Step))
	s.origin = &provenance.Origin{Path: path, Run: s.record.Run, Step: f.Step,
		End:   s.record.Initial.Ends(),
		Files: []huggingface.Part{{File: file, SHA256: f.Digest()}}}
	read := func(name string) ([]float32, error) {
		t, err := load(name)
		return t.Data, err
	}
	s.values = func(param string) ([]float32, error) { return read(step.ParamName(param)) }
	s.readInput = step.LoadQuantizer(load)
	return nil
}

func withHubSource(dir string, o Options, use func(*source) error) (err error) {
	hub, err := trained.OpenHub(dir, o.Out, o.Step, o.Context, o.Logger)
	if err != nil {
		return err
	}
	c := hub.Checkpoint
	defer func() { err = errors.Join(err, c.Close()) }()
	record := &trained.Record{Record: provenance.Record{Tokenizer: hub.Tokenizer}}
	s := &source{dir: dir, cfg: hub.Config, record: record, search: rundir.Search{Run: dir},
		values: c.Values}
	if s.origin, err = provenance.HubOrigin(vfs.At(dir), c); err != nil {
		return err
	}
	if err := use(s); err != nil {
		return err
	}
	return c.Err()
}

// calibrationSet holds the calibration sequences, each as long as the model's context. See [Blocks]
// for segments.
type calibrationSet struct {
	sequences, segments [][]int32
	*trained.Calibration
}

func (s *source) texts(o Options) (c calibrationSet, err error) {
	if o.Windows == 0 {
		return c, nil
	}
	file, err := s.openTexts(o)
	if err != nil {
		return c, err
	}
	defer file.Close()
	kind, context := build.KindOf(file), s.cfg.Model.Context
	cfg, _ := s.cfg.Changed(func(cfg *config.Config) error {
		cfg.Data.SetKind(kind)
		return nil
	})
	c.sequences, c.segments, err = build.Windows(cfg, file, o.Windows, uint64(o.Seed))
	if err != nil {
		return c, err
	}
	c.Calibration = &trained.Calibration{Path: file.Path(), SHA256: file.SHA256(), Kind: kind,
		Separate: c.segments != nil, Windows: len(c.sequences), Context: context, Seed: o.Seed,
		Tokens: int64(len(c.sequences) * context)}
	for _, list := range c.segments {
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

func (s *source) tokens() provenance.Tokens {
	return provenance.Tokens{
		Tokenizer: s.record.Tokenizer, Dir: s.dir, Vocab: s.cfg.Model.Vocab}
}

func (s *source) openTexts(o Options) (*dataset.File, error) {
	const hint = "name a token file or a chat file to calibrate with, with --data"
	if o.Data != "" {
		file, err := dataset.Open(o.Data)
		if err != nil {
			return nil, err
		}
		if err := s.tokens().Check(file, "", o.Logger); err != nil {
			return nil, errors.Join(err, file.Close())
		}
		return file, nil
	}
	if s.cfg.Untrained() {
		return nil, fmt.Errorf("%s has no training set: %s; rounding to nearest needs none: "+
			"use --windows 0", s.dir, hint)
	}
	file, _, err := build.FindTrain(s.cfg, s.search)
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", err, hint)
	}
	return file, nil
}
