package provenance

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/hashicorp/go-hclog"

	"github.com/cage-qat/cage/host/data/dataset"
	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/host/train/rundir"
)

// Tokens says what the ids of a model's tokens mean.
type Tokens struct {
	Tokenizer *tokenizer.Info // nil: not known
	Dir       string          // of the model, which may hold the tokenizer.json
	Vocab     int             // number of ids
}

// TokensOf returns those of the model in a directory, a run or a Hugging Face checkpoint, which is
// to have vocab ids.
func TokensOf(dir string, run bool, vocab int) (Tokens, error) {
	t := Tokens{Dir: dir, Vocab: vocab}
	if run {
		made, err := Read(rundir.At(dir))
		if err != nil {
			return t, err
		}
		t.Tokenizer = made.Tokenizer
		return t, nil
	}
	info, err := tokenizer.Identify(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return t, nil
	}
	t.Tokenizer = &info
	return t, err
}

// Check fails unless the ids in a file of tokens mean the same in the model: the tokenizer of the
// file must be that of the model, or that with tokens added which the model has ids for. If the
// model's is not known, a warning is logged. spec names the tokenizer.json of the file; empty: the
// one beside it.
func (t Tokens) Check(file *dataset.File, spec string, log hclog.Logger) error {
	if t.Tokenizer == nil {
		log.Warn("it is not known whether this file was made with the tokenizer of the model",
			"file", file.Path())
		return nil
	}
	data := file.Tokenizer()
	if data.SHA256 != t.Tokenizer.SHA256 {
		more, err := tokenizer.Definition(cmp.Or(spec, filepath.Dir(file.Path())), data)
		var base []byte
		if err == nil {
			base, err = tokenizer.Definition(t.Dir, *t.Tokenizer)
		}
		difference := ""
		if err == nil {
			if err = tokenizer.Extends(more, base); err != nil {
				difference = fmt.Sprintf(" (%v)", err)
			}
		}
		if err != nil {
			theirs, own := tokenizer.Distinct(data, *t.Tokenizer)
			return fmt.Errorf("%s was made with the tokenizer %s, that of the model is %s%s: "+
				"prepare the text with its tokenizer (cage data prepare --tokenizer)",
				file.Path(), theirs, own, difference)
		}
	}
	if data.VocabSize > t.Vocab {
		return fmt.Errorf("%s was made with a tokenizer of %d token ids, the model in %s has %d",
			file.Path(), data.VocabSize, t.Dir, t.Vocab)
	}
	return nil
}
