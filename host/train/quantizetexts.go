package train

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/cage-qat/cage/host/assembly"
	"github.com/cage-qat/cage/host/config"
	"github.com/cage-qat/cage/host/data/tokenizer"
)

// Calibration describes the texts that a quantization was calibrated with.
type Calibration struct {
	Path    string `json:"path"`
	SHA256  string `json:"sha256"` // of the tokens, or of the text
	Windows int    `json:"windows"`
	Context int    `json:"context"`
	Seed    int64  `json:"seed"`
}

// texts draws the sequences of the calibration, of as many tokens as the model's context.
func (s *source) texts(o QuantizeOptions) (list [][]int32, c *Calibration, err error) {
	if o.Windows == 0 {
		return nil, nil, nil
	}
	c = &Calibration{Path: o.Data, Context: s.cfg.Model.Context, Seed: o.Seed}
	file, text, err := s.openTexts(o)
	if err != nil {
		return nil, nil, err
	}
	if file == nil {
		sum := sha256.Sum256(text)
		c.SHA256 = hex.EncodeToString(sum[:])
		list, err = s.plainText(text, o)
	} else {
		defer file.Close()
		c.Path, c.SHA256 = file.Path(), file.SHA256()
		if err := s.checkTokenizer(file.Tokenizer(), o); err != nil {
			return nil, nil, err
		}
		list, err = assembly.Windows(file, c.Context, o.Windows, uint64(o.Seed))
	}
	if c.Windows = len(list); err == nil && c.Windows < o.Windows {
		o.Logger.Warn("the text has fewer windows to calibrate with than asked for", "file", c.Path, "windows", c.Windows, "wanted", o.Windows)
	}
	return list, c, err
}

// openTexts opens what the quantization is calibrated with.
func (s *source) openTexts(o QuantizeOptions) (tokens assembly.Part, text []byte, err error) {
	if o.Data != "" {
		return assembly.OpenTexts(o.Data)
	}
	if s.cfg.Untrained() || s.cfg.Data.Kind == config.KindChat {
		return nil, nil, fmt.Errorf("%s has no token files to calibrate with: name one, or a text, with --data; rounding can do without (--windows 0)", s.dir)
	}
	if tokens, _, err = assembly.FindTrain(s.cfg, s.search); err != nil {
		return nil, nil, fmt.Errorf("%w\nname a token file or a text to calibrate with, with --data", err)
	}
	return tokens, nil, nil
}

// checkTokenizer compares the tokenizer of a file with that of the model.
func (s *source) checkTokenizer(got tokenizer.Info, o QuantizeOptions) error {
	want := s.made.Tokenizer
	if want == nil {
		if o.Data != "" {
			o.Logger.Warn("it is not known whether this file was made with the tokenizer of the model", "file", o.Data)
		}
		return nil
	}
	if got.SHA256 != want.SHA256 {
		return fmt.Errorf("%s was made with the tokenizer %s, the model's is %s", o.Data, got.Name, want.Name)
	}
	return nil
}

// plainText draws sequences from a text.
func (s *source) plainText(text []byte, o QuantizeOptions) ([][]int32, error) {
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
