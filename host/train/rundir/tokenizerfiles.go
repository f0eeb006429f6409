package rundir

import (
	"errors"
	"io/fs"

	"github.com/cage-qat/cage/internal/atomicfile"
	"github.com/cage-qat/cage/internal/vfs"
)

// CopyFiles copies those of the files that a folder has into a run directory, where no other files of these names may be.
func CopyFiles(to Dir, from vfs.Path, names []string) error {
	files := map[string][]byte{}
	if err := ReadFiles(files, from, names); err != nil {
		return err
	}
	for _, name := range names {
		content, have := files[name]
		if !have {
			continue
		}
		if err := atomicfile.CheckOurs(to.Join(name), atomicfile.Is(content)); err != nil {
			return err
		}
		if err := atomicfile.WriteBytes(to.Join(name), content); err != nil {
			return err
		}
	}
	return nil
}

// ReadFiles adds those of the files that a folder has, and that are not there yet.
func ReadFiles(files map[string][]byte, folder vfs.Path, names []string) error {
	for _, name := range names {
		if _, have := files[name]; have {
			continue
		}
		content, err := folder.Join(name).ReadFile()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		files[name] = content
	}
	return nil
}
