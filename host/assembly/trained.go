package assembly

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/cage-qat/cage/host/config"
	"github.com/cage-qat/cage/host/data"
	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/host/rundir"
)

// FindValidation opens the validation file of a run that was trained before, with the
// hash that its configuration pins, wherever the file is now.
func FindValidation(cfg *config.Config, search rundir.Search) (*data.File, error) {
	return findPart(cfg, search, "data.validation", cfg.Data.Validation, cfg.Data.ValidationSHA256)
}

// FindTrain is [FindValidation] for the training file.
func FindTrain(cfg *config.Config, search rundir.Search) (*data.File, error) {
	return findPart(cfg, search, "data.train", cfg.Data.Train, cfg.Data.TrainSHA256)
}

func findPart(cfg *config.Config, search rundir.Search, key, path, pin string) (*data.File, error) {
	var file *data.File
	_, err := search.Find(path, func(place string) error {
		f, err := data.Open(place)
		if err != nil {
			return err
		}
		if got := f.Header().SHA256; pin != "" && got != pin {
			f.Close()
			return fmt.Errorf("it holds other tokens: its hash is %s, the run's %s", got, pin)
		}
		file = f
		return nil
	})
	if err != nil {
		return nil, cfg.ErrorAt(key, "%w", err)
	}
	return file, nil
}

// FindTokenizer opens the tokenizer of a run that was trained before: the copy in the
// run directory, or else where the configuration says.
func FindTokenizer(cfg *config.Config, search rundir.Search, info tokenizer.Info) (tokenizer.Tokenizer, error) {
	if t, err := tokenizer.Reopen(search.Run, info); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return t, err
	}
	key, path := "data.tokenizer", cfg.Data.Tokenizer
	if path == "" {
		key, path = "data.train", filepath.Join(filepath.Dir(cfg.Data.Train), tokenizer.DefinitionFile)
	}
	var found tokenizer.Tokenizer
	_, err := search.Find(path, func(place string) error {
		content, err := tokenizer.Definition(place, info)
		if err != nil {
			return err
		}
		found, err = tokenizer.Restore(content, info)
		return err
	})
	if err != nil {
		return nil, cfg.ErrorAt(key, "the tokenizer %s: %w", info.Name, err)
	}
	return found, nil
}
