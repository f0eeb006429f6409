package dataset

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"time"

	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/internal/atomicfile"
	"github.com/cage-qat/cage/internal/vfs"
)

// Kind holds the names of the files of one kind of dataset. The tokenizer's files
// ([tokenizer.Files]) are in the same directory.
type Kind struct{ Manifest, Train, Val string }

// Kinds of datasets.
var (
	Texts         = Kind{"dataset.json", "train.tokens", "val.tokens"}
	Conversations = Kind{"chat.json", "train.chat", "val.chat"}
)

// Owns reports whether the name is that of a file of the dataset or of its tokenizer.
func (k Kind) Owns(name string) bool {
	return name == k.Train || name == k.Val || name == k.Manifest ||
		slices.Contains(tokenizer.Files, name)
}

// Folder is the directory of a dataset that is being prepared.
type Folder struct {
	path       vfs.Path
	kind       Kind
	companions map[string][]byte
	lock       vfs.Lock
	began      time.Time
	origin     Origin

	fresh     bool // the directory was created for this dataset
	replaces  bool // it holds an earlier dataset with files of a tokenizer
	committed bool

	// Train and Val write the documents.
	Train, Val *Writer
}

// LockFile is the file that is locked while a dataset is prepared.
const LockFile = vfs.LockFile

// Prepare begins to prepare the dataset in a directory, which it creates if necessary and locks
// until Close, which the caller must call. companions holds the contents of the tokenizer's files
// by name.
//
// Prepare returns an error if it would replace a file that cage did not write. It removes the
// remains of a killed preparation.
func Prepare(
	path vfs.Path, kind Kind, origin Origin, companions map[string][]byte,
) (_ *Folder, err error) {
	f := &Folder{path: path, kind: kind, companions: companions, origin: origin, began: time.Now()}
	exists, err := path.Exists()
	if err != nil {
		return nil, err
	}
	f.fresh = !exists
	if err := path.MkdirAll(); err != nil {
		return nil, err
	}
	if err := f.checkOurs(); err != nil {
		return nil, err
	}
	f.lock, err = path.Join(LockFile).Lock()
	if errors.Is(err, vfs.ErrLocked) {
		return nil, fmt.Errorf("another process is preparing the dataset in %s", path)
	}
	if err != nil {
		return nil, err
	}
	err = atomicfile.RemoveAbandoned(path, kind.Owns)
	if err == nil {
		f.Train, err = NewWriter(path.Join(kind.Train), origin)
	}
	if err == nil {
		f.Val, err = NewWriter(path.Join(kind.Val), origin)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// checkOurs returns an error if a file that would be replaced was not written by cage. A directory
// with a manifest holds a dataset, which may be replaced. In a directory without one, tokenizer
// files that equal the new ones may be from a killed preparation.
func (f *Folder) checkOurs() error {
	manifest, err := f.path.Join(f.kind.Manifest).ReadFile()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	dataset := false
	if err == nil {
		var m *Manifest
		m, err = parseManifest(manifest)
		dataset = err == nil
		f.replaces = dataset && (m.Conversations() || m.Tokenizer != tokenizer.Bytes{}.Info())
	}
	entries, err := f.path.ReadDir()
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := e.Name()
		if !f.kind.Owns(name) {
			continue
		}
		ours := atomicfile.Begins(magic)
		if name == f.kind.Manifest {
			ours = func(io.Reader) bool { return dataset }
		}
		if slices.Contains(tokenizer.Files, name) {
			if dataset {
				continue
			}
			content, ok := f.companions[name]
			if !ok {
				continue // it will not be written
			}
			ours = atomicfile.Is(content)
		}
		err = errors.Join(err, atomicfile.CheckOurs(f.path.Join(name), ours))
	}
	return err
}

// Commit moves everything into place: the files of the tokenizer, the token files, and finally the
// manifest whole. It describes the dataset's contents in m, which whole embeds.
func (f *Folder) Commit(m *Manifest, whole any) error {
	if err := errors.Join(f.Train.Finish(), f.Val.Finish()); err != nil {
		return err
	}
	if err := f.writeCompanions(); err != nil {
		return err
	}
	train, err := f.Train.Commit()
	if err != nil {
		return err
	}
	val, err := f.Val.Commit()
	if err != nil {
		return err
	}
	m.Version, m.Origin, m.Seconds = manifestVersion, f.origin, time.Since(f.began).Seconds()
	for part, h := range map[*Part]Header{&m.Train: train, &m.Val: val} {
		part.Documents, part.Tokens, part.SHA256 = h.Documents, h.Tokens, h.SHA256
		part.Learned, part.Longest = h.Learned, h.Longest
	}
	err = atomicfile.WriteJSON(f.path.Join(f.kind.Manifest), whole)
	f.committed = err == nil
	return err
}

// writeCompanions writes the tokenizer's files, so that runs, which copy them, and models exported
// from runs have all files that were published with the tokenizer. Others of an earlier dataset are
// removed.
func (f *Folder) writeCompanions() error {
	for _, name := range append(slices.Clone(tokenizer.CompanionFiles), tokenizer.DefinitionFile) {
		path := f.path.Join(name)
		var err error
		if content, ok := f.companions[name]; ok {
			err = atomicfile.WriteBytes(path, content)
		} else if f.replaces {
			if err = path.Remove(); errors.Is(err, fs.ErrNotExist) {
				err = nil
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Close removes uncommitted files, and unlocks the directory. If the directory was created for a
// dataset that was not committed, it is removed as well.
func (f *Folder) Close() error {
	var err error
	for _, w := range []*Writer{f.Train, f.Val} {
		if w != nil {
			err = errors.Join(err, w.Abort())
		}
	}
	abandoned := f.fresh && !f.committed
	if abandoned {
		_ = f.path.Join(LockFile).Remove()
	}
	err = errors.Join(err, f.lock.Unlock())
	if abandoned {
		_ = f.path.RemoveDir() // no effect if it contains anything else
	}
	return err
}
