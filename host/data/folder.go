package data

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"

	"github.com/cage-qat/cage/host/data/dataset"
	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/internal/atomicfile"
	"github.com/cage-qat/cage/internal/vfs"
)

// lockFile is held while a dataset is prepared.
const lockFile = vfs.LockFile

// checkOurs fails if a file of somebody else stands in the folder where one of the dataset is to be. With a manifest the
// folder is a dataset, which is replaced; without, a preparation may have been killed that wrote the same.
func (o *PrepareOptions) checkOurs() error {
	manifest, err := o.out(ManifestFile).ReadFile()
	if err == nil && new(Manifest).parse(manifest) == nil {
		return nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	files := map[string][]byte{}
	if t, ok := o.Tokenizer.(*tokenizer.HuggingFace); ok {
		if files, err = t.ReadBeside(); err != nil {
			return err
		}
		files[tokenizer.DefinitionFile] = t.Definition()
	}
	entries, err := o.out().ReadDir()
	if err != nil {
		return err
	}
	for _, e := range entries {
		ours := atomicfile.Begins(dataset.Magic)
		if e.Name() == ManifestFile {
			ours = func(io.Reader) bool { return false }
		}
		if slices.Contains(tokenizer.Files, e.Name()) {
			content, ok := files[e.Name()]
			if !ok {
				continue // it is not written
			}
			ours = atomicfile.Is(content)
		}
		if ownFile(e.Name()) {
			err = errors.Join(err, atomicfile.CheckOurs(o.out(e.Name()), ours))
		}
	}
	return err
}

// enter makes sure that nobody else prepares the dataset in dir. It removes what a killed
// preparation has left there.
func enter(dir vfs.Path) (vfs.Lock, error) {
	lock, err := dir.Join(lockFile).Lock()
	if errors.Is(err, vfs.ErrLocked) {
		return nil, fmt.Errorf("another process prepares the dataset in %s", dir)
	}
	if err != nil {
		return nil, err
	}
	if err := atomicfile.RemoveAbandoned(dir, func(name string) bool { return ownFile(name) || name == spoolName }); err != nil {
		return nil, errors.Join(err, lock.Unlock())
	}
	return lock, nil
}
