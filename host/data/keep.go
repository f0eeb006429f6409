package data

import (
	"bytes"
	"errors"
	"io/fs"

	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/internal/atomicfile"
	"github.com/cage-qat/cage/internal/vfs"
)

// keepTokenizer writes the files of the tokenizer, so that a run that copies from the folder, and an export of it, has all
// that was published with the tokenizer. What lies beside another tokenizer.json, which is replaced, goes with it.
func keepTokenizer(dir vfs.Path, t *tokenizer.HuggingFace) error {
	beside, err := t.ReadBeside()
	if err != nil {
		return err
	}
	before, err := dir.Join(tokenizer.DefinitionFile).ReadFile()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	replaces := err == nil && !bytes.Equal(before, t.Definition())
	for _, name := range tokenizer.Beside {
		path := dir.Join(name)
		if content, ok := beside[name]; ok {
			err = atomicfile.WriteBytes(path, content)
		} else if replaces {
			if err = path.Remove(); errors.Is(err, fs.ErrNotExist) {
				err = nil
			}
		} else {
			continue
		}
		if err != nil {
			return err
		}
	}
	return atomicfile.WriteBytes(dir.Join(tokenizer.DefinitionFile), t.Definition())
}
