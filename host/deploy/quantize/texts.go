package quantize

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/cage-qat/cage/host/data/dataset"
	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/host/deploy/trained"
	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/host/train/assembly"
	"github.com/cage-qat/cage/host/train/config"
)

// calibrationSet are the sequences of a calibration, of as many tokens as the model's context. See [layerwise.Run] for
// segments.
type calibrationSet struct {
	sequences, segments [][]int32
	*trained.Calibration
}

// texts draws the sequences of the calibration.
func (s *source) texts(o Options) (c calibrationSet, err error) {
	if o.Windows == 0 {
		return c, nil
	}
	c.Calibration = &trained.Calibration{Path: o.Data, Kind: config.KindText, Context: s.cfg.Model.Context, Seed: o.Seed}
	file, text, err := s.openTexts(o)
	if err != nil {
		return c, err
	}
	if file == nil {
		sum := sha256.Sum256(text)
		c.SHA256 = hex.EncodeToString(sum[:])
		c.sequences, err = s.plainText(text, o)
	} else {
		defer file.Close()
		c.Path, c.SHA256, c.Kind = file.Path(), file.SHA256(), assembly.KindOf(file)
		if o.Data != "" {
			if err := s.checkTokenizer(file, o); err != nil {
				return c, err
			}
		}
		cfg, _ := s.cfg.Changed(func(cfg *config.Config) error {
			cfg.Data.SetKind(c.Kind)
			return nil
		})
		c.sequences, c.segments, err = assembly.Windows(cfg, file, o.Windows, uint64(o.Seed))
	}
	if err != nil {
		return c, err
	}
	c.Separate, c.Windows, c.Tokens = c.segments != nil, len(c.sequences), int64(len(c.sequences)*c.Context)
	for _, list := range c.segments {
		c.Tokens -= int64(padding(list))
	}
	if c.Windows < o.Windows {
		o.Logger.Warn("there are fewer sequences to calibrate with than asked for", "file", c.Path, "sequences", c.Windows, "wanted", o.Windows)
	}
	return c, nil
}

// padding is the number of places without a document.
func padding(segments []int32) (n int) {
	for _, s := range segments {
		if s == model.Padding {
			n++
		}
	}
	return n
}

// openTexts opens what the quantization is calibrated with.
func (s *source) openTexts(o Options) (tokens *dataset.File, text []byte, err error) {
	if o.Data != "" {
		return assembly.OpenTexts(o.Data)
	}
	if s.cfg.Untrained() {
		return nil, nil, fmt.Errorf("%s has no training set to calibrate with: name a token file, a chat file or a text with --data; rounding can do without (--windows 0)", s.dir)
	}
	if tokens, _, err = assembly.FindTrain(s.cfg, s.search); err != nil {
		return nil, nil, fmt.Errorf("%w\nname a token file, a chat file or a text to calibrate with, with --data", err)
	}
	return tokens, nil, nil
}

// checkTokenizer compares the tokenizer of a file that the user names with that of the model.
func (s *source) checkTokenizer(file *dataset.File, o Options) error {
	got, want := file.Tokenizer(), s.made.Tokenizer
	if want == nil {
		o.Logger.Warn("it is not known whether this file was made with the tokenizer of the model", "file", file.Path())
		return nil
	}
	if got.SHA256 != want.SHA256 {
		return fmt.Errorf("%s was made with the tokenizer %s, the model's is %s", file.Path(), got.Name, want.Name)
	}
	return nil
}

// plainText draws sequences from a text.
func (s *source) plainText(text []byte, o Options) ([][]int32, error) {
	if s.made.Tokenizer == nil {
		return nil, fmt.Errorf("%s is no token file, and %s has no %s to make tokens of a text with", o.Data, s.dir, tokenizer.DefinitionFile)
	}
	tok, err := assembly.FindTokenizer(s.cfg, s.search, *s.made.Tokenizer)
	if err != nil {
		return nil, err
	}
	ids, err := tok.Encode(string(text))
	var list [][]int32
	if err == nil {
		list, err = assembly.CutWindows(ids, s.cfg.Model.Context, o.Windows, uint64(o.Seed))
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.Data, err)
	}
	return list, nil
}
