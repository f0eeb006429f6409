package assembly

import (
	"fmt"
	"path/filepath"

	"github.com/cage-qat/cage/host/config"
	"github.com/cage-qat/cage/host/data"
	"github.com/cage-qat/cage/host/data/tokenizer"
)

// Data are the token files of a run.
type Data struct {
	Train, Validation *data.File
}

// OpenData opens the files that the configuration names, compares them with the
// hashes it pins and with each other, and fills in model.vocab where it is 0.
func OpenData(cfg *config.Config) (*Data, error) {
	d := &Data{}
	var err error
	if d.Train, err = openPart(cfg, "data.train", cfg.Data.Train, cfg.Data.TrainSHA256); err != nil {
		return nil, err
	}
	if d.Validation, err = openPart(cfg, "data.validation", cfg.Data.Validation, cfg.Data.ValidationSHA256); err != nil {
		d.Close()
		return nil, err
	}
	if err := d.fit(cfg); err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

func openPart(cfg *config.Config, key, path, pin string) (*data.File, error) {
	f, err := data.Open(path)
	if err != nil {
		e := cfg.ErrorAt(key, "%w", err)
		e.Hint = "make token files with `cage data prepare`"
		return nil, e
	}
	if got := f.Header().SHA256; pin != "" && pin != got {
		f.Close()
		return nil, cfg.ErrorAt(key+"_sha256", "%s has the hash %s, the configuration pins %s", path, got, pin)
	}
	return f, nil
}

// fit compares the vocabularies of both files and of the model.
func (d *Data) fit(cfg *config.Config) error {
	train, val := d.Train.Header().Tokenizer, d.Validation.Header().Tokenizer
	if train.SHA256 != val.SHA256 || train.VocabSize != val.VocabSize {
		return cfg.ErrorAt("data.validation", "%s was made with the tokenizer %s, %s with %s: both need the same",
			d.Validation.Path(), val.Name, d.Train.Path(), train.Name)
	}
	if cfg.Model.Vocab == 0 {
		cfg.Model.Vocab = train.VocabSize
	}
	if cfg.Model.Vocab < train.VocabSize {
		e := cfg.ErrorAt("model.vocab", "the model has %d token ids, the data has %d", cfg.Model.Vocab, train.VocabSize)
		e.Hint = "leave the key out to take the data's"
		return e
	}
	return nil
}

// Definition reads the tokenizer.json of the tokenizer that the data was made with; nil
// when it is built in. Where the configuration names none, it lies beside the training
// file.
func (d *Data) Definition(cfg *config.Config) ([]byte, error) {
	spec := cfg.Data.Tokenizer
	if spec == "" {
		spec = filepath.Dir(d.Train.Path())
	}
	content, err := tokenizer.Definition(spec, d.Train.Header().Tokenizer)
	if err != nil {
		return nil, cfg.ErrorAt("data.tokenizer", "%w", err)
	}
	return content, nil
}

// Pin writes the hashes of the files into the configuration, so that a copy of it
// repeats the run on the same data or not at all.
func (d *Data) Pin(cfg *config.Config) {
	cfg.Data.TrainSHA256 = d.Train.Header().SHA256
	cfg.Data.ValidationSHA256 = d.Validation.Header().SHA256
}

// Close closes both files.
func (d *Data) Close() error {
	var first error
	for _, f := range []*data.File{d.Train, d.Validation} {
		if f == nil {
			continue
		}
		if err := f.Close(); err != nil && first == nil {
			first = fmt.Errorf("close %s: %w", f.Path(), err)
		}
	}
	return first
}
