package train

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"unicode/utf8"

	"github.com/cage-qat/cage/host/assembly"
	"github.com/cage-qat/cage/host/config"
	"github.com/cage-qat/cage/host/data"
	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/internal/regular"
)

// Calibration says which texts a quantization was calibrated with.
type Calibration struct {
	Path    string `json:"path"`
	SHA256  string `json:"sha256"` // of the tokens, or of the text
	Windows int    `json:"windows"`
	Context int    `json:"context"`
	Seed    int64  `json:"seed"`
}

// texts draws the sequences of the calibration, of as many tokens as the model's context.
func (s *source) texts(ctx context.Context, o QuantizeOptions) ([][]int32, *Calibration, error) {
	if o.Windows == 0 {
		return nil, nil, nil
	}
	file, err := s.openTexts(o)
	if _, ok := errors.AsType[*data.FormatError](err); ok && o.Data != "" {
		text, textErr := regular.ReadFile(o.Data)
		if textErr == nil && utf8.Valid(text) && bytes.IndexByte(text, 0) < 0 {
			return s.plainText(o, text)
		}
	}
	if err != nil {
		return nil, nil, err
	}
	defer file.Close()
	if err := s.checkTokenizer(file.Tokenizer(), o); err != nil {
		return nil, nil, err
	}
	length := s.cfg.Model.Context
	n := int(min(int64(o.Windows), file.Len()/int64(length)-1))
	sampler, err := data.NewSampler(file, data.SamplerConfig{Context: length, Batch: 1, Seed: uint64(o.Seed)})
	if err != nil {
		return nil, nil, err
	}
	list := make([][]int32, n)
	for i := range list {
		if err := ctx.Err(); err != nil {
			return nil, nil, err
		}
		window := make([]int32, length+1)
		if err := sampler.At(int64(i), window); err != nil {
			return nil, nil, err
		}
		list[i] = window[:length]
	}
	return list, s.calibration(o, file.Path(), file.SHA256(), n), nil
}

func (s *source) calibration(o QuantizeOptions, path, sha256 string, windows int) *Calibration {
	if windows < o.Windows {
		o.Logger.Warn("the text has fewer windows to calibrate with than asked for", "file", path, "windows", windows, "wanted", o.Windows)
	}
	return &Calibration{Path: path, SHA256: sha256, Windows: windows, Context: s.cfg.Model.Context, Seed: o.Seed}
}

// openTexts opens the token file to calibrate with.
func (s *source) openTexts(o QuantizeOptions) (*data.File, error) {
	if o.Data != "" {
		return data.Open(o.Data)
	}
	if s.cfg.Untrained() || s.cfg.Data.Kind == config.KindChat {
		return nil, fmt.Errorf("%s has no token files to calibrate with: name one, or a text, with --data; --windows 0 calibrates nothing", s.dir)
	}
	part, _, err := assembly.FindTrain(s.cfg, s.search)
	if err != nil {
		return nil, fmt.Errorf("%w\nname a token file or a text to calibrate with, with --data", err)
	}
	return part.(*data.File), nil
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

// plainText draws sequences from a file of text, which is cut into windows.
func (s *source) plainText(o QuantizeOptions, text []byte) ([][]int32, *Calibration, error) {
	if s.made.Tokenizer == nil {
		return nil, nil, fmt.Errorf("%s is no token file, and %s has no %s to make tokens of a text with", o.Data, s.dir, tokenizer.DefinitionFile)
	}
	tok, err := assembly.FindTokenizer(s.cfg, s.search, *s.made.Tokenizer)
	if err != nil {
		return nil, nil, err
	}
	ids, err := tok.Encode(string(text))
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", o.Data, err)
	}
	length := s.cfg.Model.Context
	if len(ids) < length {
		return nil, nil, fmt.Errorf("%s has %d tokens, which is less than one window of %d", o.Data, len(ids), length)
	}
	order := rand.New(rand.NewPCG(uint64(o.Seed), 0)).Perm(len(ids) / length)
	var list [][]int32
	for _, i := range order[:min(o.Windows, len(order))] {
		list = append(list, ids[i*length:(i+1)*length])
	}
	sum := sha256.Sum256(text)
	return list, s.calibration(o, o.Data, hex.EncodeToString(sum[:]), len(list)), nil
}
