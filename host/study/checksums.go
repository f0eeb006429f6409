package study

import (
	"errors"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"

	"github.com/cage-qat/cage/internal/atomicfile"
	"github.com/cage-qat/cage/internal/digest"
	"github.com/cage-qat/cage/internal/vfs"
)

var errNotAsDone = errors.New("it has changed since the cell was done")

// checksums returns the SHA-256 of each file of a cell's run from which results and reports are
// made, by its name in the cell's directory; "" if there is none. Evaluations have their own.
func (s *Study) checksums(c Cell) (map[string]string, error) {
	run := s.run(c)
	sums := map[string]string{}
	for _, path := range []vfs.Path{
		run.Summary(), run.Metrics(), run.Trajectory(), run.Provenance(),
	} {
		name, err := filepath.Rel(s.dir(c).Name, path.Name)
		if err != nil {
			return nil, err
		}
		sums[name], err = fileHash(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	return sums, nil
}

// fileHash returns the SHA-256 of a file, in hexadecimal.
func fileHash(path vfs.Path) (string, error) {
	file, err := path.Open()
	if err != nil {
		return "", err
	}
	sum, err := digest.Of(file)
	return sum, errors.Join(err, file.Close())
}

// writeChecksums records the files of a cell that is done, unless they are recorded already.
func (s *Study) writeChecksums(c Cell) error {
	path := s.dir(c).Join(checksumsFile)
	if recorded, err := path.Exists(); recorded || err != nil {
		return err
	}
	sums, err := s.checksums(c)
	if err == nil {
		err = removeAbandoned(path.Dir(), checksumsFile)
	}
	if err != nil {
		return err
	}
	return atomicfile.WriteJSON(path, sums)
}

// verify compares the files of a cell with those with which it was done. If one differs, the error
// is a *damagedFile. Cells of earlier versions have no checksums.
func (s *Study) verify(c Cell) error {
	path, recorded := s.dir(c).Join(checksumsFile), map[string]string{}
	if err := readOurs(path, &recorded); errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	sums, err := s.checksums(c)
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		if was, ok := recorded[name]; ok && was != sums[name] {
			return &damagedFile{s.dir(c).Join(name), errNotAsDone}
		}
	}
	return err
}
