package data

import (
	"context"
	"errors"
	"fmt"

	"github.com/cage-qat/cage/host/data/dataset"
	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/internal/atomicfile"
	"github.com/cage-qat/cage/internal/vfs"
)

// LearnTokenizer trains a tokenizer with the given number of tokens on a token file that was made
// with [tokenizer.Bytes], writes its tokenizer.json and tokenizer_config.json into dir, and returns
// a description of it.
func LearnTokenizer(
	ctx context.Context, f *dataset.File, tokens int, dir vfs.Path,
) (_ tokenizer.Info, err error) {
	if f.Tokenizer() != (tokenizer.Bytes{}).Info() {
		return tokenizer.Info{}, fmt.Errorf("%s was made with the tokenizer %s: want a "+
			"token file of bytes, as made by `cage data prepare` without --tokenizer",
			f.Path(), f.Tokenizer().Name)
	}
	config, err := atomicfile.JSON(map[string]any{
		"tokenizer_class": "PreTrainedTokenizerFast",
		"bos_token":       tokenizer.Specials[0], "eos_token": tokenizer.Specials[1],
	})
	if err == nil {
		err = atomicfile.CheckOurs(dir.Join(tokenizer.ConfigFile), atomicfile.Is(config))
	}
	if err != nil {
		return tokenizer.Info{}, err
	}
	l := tokenizer.NewLearner()
	if err := eachDocument(ctx, f, l.Add); err != nil {
		return tokenizer.Info{}, err
	}
	definition, err := l.Definition(tokens)
	if err != nil {
		return tokenizer.Info{}, err
	}
	if err := dir.MkdirAll(); err != nil {
		return tokenizer.Info{}, err
	}
	lock, err := dir.Join(dataset.LockFile).Lock()
	if err != nil {
		return tokenizer.Info{}, fmt.Errorf("%s: %w", dir, err)
	}
	defer func() { err = errors.Join(err, lock.Unlock()) }()
	ours := func(name string) bool {
		return name == tokenizer.ConfigFile || name == tokenizer.DefinitionFile
	}
	if err := atomicfile.RemoveAbandoned(dir, ours); err != nil {
		return tokenizer.Info{}, err
	}
	path := dir.Join(tokenizer.DefinitionFile)
	if err := atomicfile.CheckOurs(path, atomicfile.Is(definition)); err != nil {
		return tokenizer.Info{}, err
	}
	if err := atomicfile.WriteBytes(dir.Join(tokenizer.ConfigFile), config); err != nil {
		return tokenizer.Info{}, err
	}
	// The definition is written last, so that its presence means that the tokenizer is complete.
	if err := atomicfile.WriteBytes(path, definition); err != nil {
		return tokenizer.Info{}, err
	}
	tok, err := tokenizer.LoadHuggingFace(path.Name)
	if err != nil {
		return tokenizer.Info{}, err
	}
	return tok.Info(), nil
}

// eachDocument calls use with the text of every document in a token file of bytes, or with parts of
// a long one.
func eachDocument(ctx context.Context, f *dataset.File, use func(text string) error) error {
	const maxPart = 1 << 20
	bos := f.Tokenizer().BOS
	ids := make([]int32, maxPart)
	var text []byte
	flush := func() error {
		err := use(string(text))
		text = text[:0]
		return err
	}
	for at := int64(0); at < f.Len(); at += maxPart {
		if err := ctx.Err(); err != nil {
			return err
		}
		part := ids[:min(maxPart, f.Len()-at)]
		if err := f.ReadTokens(part, at); err != nil {
			return err
		}
		for _, id := range part {
			if id != bos {
				text = append(text, byte(id))
			}
			if id == bos || len(text) >= maxPart && id == '\n' {
				if err := flush(); err != nil {
					return err
				}
			}
		}
	}
	return flush()
}
