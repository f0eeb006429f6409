package quantize

import (
	"fmt"
	"path/filepath"

	"github.com/cage-qat/cage/host/data/dataset"
	"github.com/cage-qat/cage/host/deploy/trained"
	"github.com/cage-qat/cage/host/model/huggingface"
	"github.com/cage-qat/cage/host/train/build"
	"github.com/cage-qat/cage/host/train/checkpoint"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/provenance"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/internal/vfs"
	"github.com/cage-qat/cage/sdk/program"
)

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

func (s *run) values(param string) ([]float32, error) {
	t, err := s.load(program.KindParam.Of(param))
	return t.Data, err
}

// texts reads the calibration texts into blocks, and describes them; it returns nil if none is
// wanted.
func (s *run) texts(blocks *Blocks) (*trained.Calibration, error) {
	if s.Windows == 0 {
		return nil, nil
	}
	file, err := s.openTexts()
	if err != nil {
		return nil, err
	}
	defer file.Close()
	kind := build.KindOf(file)
	cfg, _ := s.Config.Changed(func(cfg *config.Config) error {
		cfg.Data.SetKind(kind)
		return nil
	})
	blocks.Sequences, blocks.Segments, err = build.Windows(cfg, file, s.Windows, uint64(s.Seed))
	if err != nil {
		return nil, err
	}
	c := &trained.Calibration{Path: file.Path(), SHA256: file.SHA256(), Kind: kind,
		Separate: blocks.Segments != nil, Windows: len(blocks.Sequences), Context: blocks.Context,
		Seed: s.Seed, Tokens: int64(len(blocks.Sequences) * blocks.Context)}
	for _, list := range blocks.Segments {
		for _, segment := range list {
			if segment == dataset.Padding {
				c.Tokens--
			}
		}
	}
	if c.Windows < s.Windows {
		s.Logger.Warn("there are fewer calibration sequences than requested",
			"file", c.Path, "sequences", c.Windows, "wanted", s.Windows)
	}
	return c, nil
}

func (s *run) openTexts() (*dataset.File, error) {
	const hint = "name a token file or a chat file to calibrate with, with --data"
	if s.Data != "" {
		return s.OpenData(s.Data, s.Logger)
	}
	if s.Config.Untrained() {
		return nil, fmt.Errorf("%s has no training set: %s; rounding to nearest needs none: "+
			"use --method rtn --windows 0", s.Dir, hint)
	}
	file, _, err := build.FindTrain(s.Config, s.Search)
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", err, hint)
	}
	return file, nil
}
