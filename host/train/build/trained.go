package build

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cage-qat/cage/host/data/dataset"
	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/host/model/huggingface"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/plugin"
	"github.com/cage-qat/cage/host/train/rundir"
)

// FindValidation locates and opens the validation file of an earlier run, which must have the hash
// pinned in the configuration.
func FindValidation(cfg *config.Config, search rundir.Search) (*dataset.File, error) {
	pin, path := cfg.Data.ValidationSHA256, cfg.Data.Validation
	file, _, err := findPart(cfg, search, "data.validation", pin, path)
	return file, err
}

// FindTrain locates the training files of an earlier run and opens them as a single file, which
// must have the pinned hash. It also returns their paths.
func FindTrain(
	cfg *config.Config, search rundir.Search,
) (file *dataset.File, paths []string, err error) {
	return findPart(cfg, search, "data.train", cfg.Data.TrainSHA256, cfg.Data.Files()...)
}

// findPart locates each file separately and opens all as one, which must have the pinned hash. If
// there is only one file, it skips candidates with another hash.
func findPart(
	cfg *config.Config, search rundir.Search, key, pin string, paths ...string,
) (*dataset.File, []string, error) {
	var found []string
	for _, path := range paths {
		path, err := search.Find(path, func(path string) error {
			f, err := openFiles(cfg.Data.Kind, path)
			if err != nil {
				return err
			}
			defer f.Close()
			if len(paths) > 1 {
				return nil
			}
			return samePart(f, pin)
		})
		if err != nil {
			return nil, nil, cfg.ErrorAt(key, "%w", err)
		}
		found = append(found, path)
	}
	joined, err := openFiles(cfg.Data.Kind, found...)
	if err == nil {
		if err = samePart(joined, pin); err != nil {
			joined.Close()
		}
	}
	if err != nil {
		return nil, nil, cfg.ErrorAt(key, "%w", err)
	}
	return joined, found, nil
}

func samePart(f *dataset.File, pin string) error {
	if got := f.SHA256(); pin != "" && got != pin {
		return fmt.Errorf("its tokens have the hash %s, want %s as in the run", got, pin)
	}
	return nil
}

// FindTokenizer opens the tokenizer of an earlier run: the copy in the run directory or, if there
// is none, data.tokenizer or the tokenizer.json beside the training data.
func FindTokenizer(
	cfg *config.Config, search rundir.Search, info tokenizer.Info,
) (tokenizer.Tokenizer, error) {
	if t, err := tokenizer.Reopen(search.Run, info); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return t, err
	}
	key, path := "data.tokenizer", cfg.Data.Tokenizer
	if files := cfg.Data.Files(); path == "" && len(files) > 0 {
		key, path = "data.train", filepath.Join(filepath.Dir(files[0]), tokenizer.DefinitionFile)
	}
	if path == "" {
		return nil, fmt.Errorf("%s has no %s, and its configuration names no tokenizer or data "+
			"to find it with", search.Run, tokenizer.DefinitionFile)
	}
	var found tokenizer.Tokenizer
	_, err := search.Find(path, func(path string) error {
		content, err := tokenizer.Definition(path, info)
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

// FindPlugins locates the plugins of an earlier run, updates their paths and clears their hashes. A
// plugin that is at none of the candidate paths is located by name. Callers must compare the
// programs to find out whether it is the run's plugin.
func FindPlugins(
	cfg *config.Config, plugins []*config.Plugin, search rundir.Search, finder *plugin.Finder,
) error {
	for _, p := range plugins {
		p.SHA256 = "" // the programs must be those of the run, not the executables
		if !strings.ContainsRune(p.Name, filepath.Separator) {
			continue
		}
		path, err := search.Find(p.Name, func(path string) error {
			_, err := os.Stat(path)
			return err
		})
		switch name := filepath.Base(p.Name); {
		case err != nil && slices.Contains(finder.Names(), name):
			p.Name = name
		case err != nil:
			return cfg.ErrorAt(p.Path("plugin"), "%w\nand no plugin has the name %s; "+
				"%s may name a directory that holds it", err, name, plugin.PathVariable)
		case p.Name != path:
			if p.Name, err = filepath.Abs(path); err != nil {
				return err
			}
		}
	}
	return nil
}

// LearnedTokens returns the BOS and EOS tokens that a run trains on. For conversations, it only
// returns the token that ends a turn.
func LearnedTokens(
	cfg *config.Config, tok tokenizer.Tokenizer, endOfTurn int32,
) huggingface.Tokens {
	known := func(id int32) []int32 {
		return slices.DeleteFunc([]int32{id}, func(id int32) bool { return id == tokenizer.NoToken })
	}
	switch {
	case cfg.Untrained():
		return huggingface.Tokens{}
	case cfg.Data.Kind == config.KindChat:
		return huggingface.Tokens{End: known(endOfTurn)}
	}
	return huggingface.Tokens{Begin: known(tok.Info().BOS), End: known(tok.Info().EOS)}
}

// Beginning encodes text as the beginning of a document. A BOS token is prepended if the tokenizer
// adds it to every text, if the model was trained on documents, or if text has no tokens.
func Beginning(cfg *config.Config, tok tokenizer.Tokenizer, text string) ([]int32, error) {
	ids, err := tok.Encode(text)
	learned := !cfg.Untrained() && cfg.Data.Kind == config.KindText
	wanted := learned || tokenizer.AddsBOS(tok) || len(ids) == 0
	if bos := tok.Info().BOS; bos != tokenizer.NoToken && wanted {
		ids = append([]int32{bos}, ids...)
	}
	return ids, err
}
