package kept

import (
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/cage-qat/cage/host/study"
	"github.com/cage-qat/cage/internal/atomicfile"
)

// ReadFor reads the file of kept results of a study.
func ReadFor(s *study.Study, path string) (*File, error) {
	file, err := Read(path)
	if err != nil {
		return nil, err
	}
	if file.Study != s.Name {
		return nil, fmt.Errorf("%s has results of the study %s, and %s is %s", path, file.Study, s.File, s.Name)
	}
	return file, nil
}

// Update writes the file at path, or adds to it. Where it has results of cells that the study does not name any more, forget
// drops them.
func Update(path string, s *study.Study, results []study.Result, forget bool, revision string, now time.Time) (*File, error) {
	before, err := Read(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if before != nil && before.Study != s.Name {
		return nil, fmt.Errorf("%s has results of the study %s, and %s is %s: give another --out", path, before.Study, s.File, s.Name)
	}
	if unknown := before.Unknown(s); len(unknown) > 0 && !forget {
		return nil, fmt.Errorf("%s has results of %d cells that %s does not name any more, such as %s: give --forget to drop them, or another --out", path, len(unknown), s.File, unknown[0])
	}
	file, err := Take(s, results, before, revision, now)
	if err != nil {
		return nil, err
	}
	if len(file.Cells) == 0 {
		return nil, fmt.Errorf("no cell of %s is done: there is nothing to keep", s.File)
	}
	to, err := atomicfile.Target(path)
	if err != nil {
		return nil, err
	}
	return file, file.Write(to.Name)
}
