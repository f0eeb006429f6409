package build

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/cage-qat/cage/host/data/dataset"
	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/host/train/config"
)

// Data holds the token files of a run.
type Data struct {
	Train, Validation *dataset.File
	// Sources are the files of Train as sources of a mixture; nil if there is no mixture.
	Sources []*dataset.File

	mixture *dataset.Mixture // of the sources, from [OpenBatches]
	counted *dataset.Rows    // from counting the steps of conversations, for [OpenBatches]
}

// OpenData opens the configured files. It checks that they have the pinned hashes and the same
// tokenizer, and that the model's vocabulary includes theirs.
func OpenData(cfg *config.Config) (*Data, error) {
	d := &Data{}
	var err error
	if d.Train, d.Sources, err = openTrain(cfg); err != nil {
		return nil, err
	}
	pin, path := cfg.Data.ValidationSHA256, cfg.Data.Validation
	if d.Validation, err = openPart(cfg, "data.validation", pin, path); err == nil {
		err = d.check(cfg)
	}
	if err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

func openTrain(cfg *config.Config) (train *dataset.File, sources []*dataset.File, err error) {
	if len(cfg.Data.Mixture) == 0 {
		train, err = openPart(cfg, "data.train", cfg.Data.TrainSHA256, cfg.Data.Files()...)
		return train, nil, err
	}
	for i, path := range cfg.Data.Files() {
		f, err := openPart(cfg, cfg.Data.FileKey(i), "", path)
		if err != nil {
			return nil, nil, errors.Join(err, closeAll(sources))
		}
		sources = append(sources, f)
	}
	joined, err := dataset.Join(sources...)
	if err != nil {
		return nil, nil, errors.Join(cfg.ErrorAt("data.mixture", "%w", err), closeAll(sources))
	}
	if err := checkPin(cfg, "data.train_sha256", cfg.Data.TrainSHA256, joined); err != nil {
		return nil, nil, err
	}
	return joined, sources, nil
}

func closeAll(files []*dataset.File) error {
	var errs []error
	for _, f := range files {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}

func openPart(cfg *config.Config, key, pin string, paths ...string) (*dataset.File, error) {
	f, err := openFiles(cfg.Data.Kind, paths...)
	if err != nil {
		e := cfg.ErrorAt(key, "%w", err)
		e.Hint = "make token files with `cage data prepare`"
		if cfg.Data.Kind == config.KindChat {
			e.Hint = "make token files of conversations with `cage data prepare --kind chat`"
		}
		return nil, e
	}
	if err := checkPin(cfg, key+"_sha256", pin, f); err != nil {
		return nil, err
	}
	return f, nil
}

// checkPin returns an error, and closes the file, if its hash differs from the pinned one.
func checkPin(cfg *config.Config, pinKey, pin string, f *dataset.File) error {
	if got := f.SHA256(); pin != "" && pin != got {
		f.Close()
		return cfg.ErrorAt(pinKey, "%s has the hash %s, want %s as in the configuration",
			strings.Join(f.Paths(), ", "), got, pin)
	}
	return nil
}

func (d *Data) check(cfg *config.Config) error {
	train, val := d.Train.Tokenizer(), d.Validation.Tokenizer()
	if train.SHA256 != val.SHA256 || train.VocabSize != val.VocabSize {
		theirs, own := tokenizer.Distinct(val, train)
		return cfg.ErrorAt("data.validation",
			"%s was made with the tokenizer %s, %s with %s: both need the same",
			d.Validation.Path(), theirs, d.Train.Path(), own)
	}
	vocab := cfg.Model.Vocab
	if vocab == 0 || vocab >= train.VocabSize {
		return nil
	}
	e := cfg.ErrorAt("model.vocab", "the model has %d token ids, the data has %d",
		vocab, train.VocabSize)
	e.Hint = "leave the key out to take the data's"
	if cfg.Init == "" {
		return e
	}
	own, err := tokenizer.Identify(cfg.Init)
	if err == nil && own.SHA256 != train.SHA256 {
		e.Hint = fmt.Sprintf("if the data's tokenizer is the model's with more tokens, "+
			"give the model rows for them: new_tokens = %d", cfg.NewTokens+train.VocabSize-vocab)
		return e
	}
	for _, f := range append([]*dataset.File{d.Train, d.Validation}, d.Sources...) {
		f.Limit(vocab) // Gemma's tokenizer has a token more than its models
	}
	return nil
}

// PinnedToData opens the configured data, calls [Data.Pinned] and closes the data.
func PinnedToData(cfg *config.Config) (*config.Config, error) {
	d, err := OpenData(cfg)
	if err != nil {
		return nil, err
	}
	pinned, err := d.Pinned(cfg)
	return pinned, errors.Join(err, d.Close())
}

// Definition reads the tokenizer.json of the data's tokenizer from data.tokenizer or, if that is
// not set, from the directory of the training file. It returns nil for a built-in tokenizer.
func (d *Data) Definition(cfg *config.Config) ([]byte, error) {
	spec := cmp.Or(cfg.Data.Tokenizer, filepath.Dir(d.Train.Path()))
	content, err := tokenizer.Definition(spec, d.Train.Tokenizer())
	if err != nil {
		return nil, cfg.ErrorAt("data.tokenizer", "%w", err)
	}
	return content, nil
}

// Pinned returns a copy of cfg with the hashes of the files and, if unset, the vocabulary size and,
// for conversations, the number of steps. More steps than data.epochs allows are an error.
func (d *Data) Pinned(cfg *config.Config) (*config.Config, error) {
	return cfg.Changed(func(c *config.Config) error {
		c.Data.TrainSHA256, c.Data.ValidationSHA256 = d.Train.SHA256(), d.Validation.SHA256()
		c.Model.Vocab = cmp.Or(c.Model.Vocab, d.Train.Tokenizer().VocabSize)
		if !d.Train.Conversations() {
			return nil
		}
		var err error
		if d.counted, err = openRows(c, d.Train); err != nil || c.Train.Steps > 0 {
			return err
		}
		return c.SetSteps(int(d.counted.Steps()))
	})
}

// SourceFiles returns the number of token files of each source of a mixture. It returns nil if the
// data is not a mixture.
func (d *Data) SourceFiles() (counts []int) {
	for _, f := range d.Sources {
		counts = append(counts, len(f.Paths()))
	}
	return counts
}

// Close closes the training and validation files.
func (d *Data) Close() error {
	return closeAll([]*dataset.File{d.Train, d.Validation})
}

func openFiles(kind string, paths ...string) (*dataset.File, error) {
	f, err := dataset.Open(paths...)
	if err != nil {
		return nil, err
	}
	if found := KindOf(f); found != kind {
		err = fmt.Errorf("%s holds data of kind %q, want %q", f.Path(), found, kind)
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// KindOf returns the kind of data in a token file: [config.KindChat] or [config.KindText].
func KindOf(f *dataset.File) string {
	if f.Conversations() {
		return config.KindChat
	}
	return config.KindText
}

// Windows samples at most n sequences of the model's context length from a token file, without
// replacement, in an order determined by seed: windows of text, or rows of conversations packed as
// in training. If documents are separate, segments holds the document number of each token, or
// [dataset.Padding] at padding; otherwise it is nil.
func Windows(
	cfg *config.Config, file *dataset.File, n int, seed uint64,
) (tokens, segments [][]int32, err error) {
	context := cfg.Model.Context
	if file.Conversations() {
		how := conversationRows(cfg, 1)
		how.Epochs, how.Seed = 1, seed
		s, err := dataset.NewRows(file, how)
		if err != nil {
			return nil, nil, err
		}
		for i := range min(int64(n), s.Steps()) {
			rows := dataset.RowsOf(make([]int32, dataset.Planes*(context+1)), context)
			if _, err := s.At(i, 0, rows); err != nil {
				return nil, nil, err
			}
			tokens = append(tokens, rows[0].Tokens[:context])
			segments = append(segments, rows[0].Segments[:context])
		}
		return tokens, segments, nil
	}
	s, err := dataset.NewWindows(file, dataset.WindowsConfig{Context: context, Batch: 1, Seed: seed})
	if err != nil {
		return nil, nil, err
	}
	for i := range min(int64(n), file.Len()/int64(context)-1) { // number of windows in an epoch
		window := make([]int32, s.BatchLen())
		if err := s.At(i, window); err != nil {
			return nil, nil, err
		}
		tokens = append(tokens, window[:context])
		if cfg.Data.Separate() {
			numbers := make([]int32, context)
			numberDocuments(numbers, window[:context], file.Tokenizer())
			segments = append(segments, numbers)
		}
	}
	return tokens, segments, nil
}
