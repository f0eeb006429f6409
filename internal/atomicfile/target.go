package atomicfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/cage-qat/cage/internal/vfs"
)

// Target returns the path for a file that the user has named, following a symbolic link. Its directory is created if it
// does not exist. The name of a pipe, a device or a directory is refused, because a file would replace it.
func Target(name string) (vfs.Path, error) {
	info, err := os.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Lstat(name); err == nil {
			return vfs.Path{}, fmt.Errorf("%s is a symbolic link that leads nowhere", name)
		}
		return vfs.At(name), vfs.At(filepath.Dir(name)).MkdirAll()
	}
	if err != nil {
		return vfs.Path{}, err
	}
	if !info.Mode().IsRegular() {
		return vfs.Path{}, fmt.Errorf("%s is no regular file, and would be replaced by one", name)
	}
	real, err := filepath.EvalSymlinks(name)
	return vfs.At(real), err
}
