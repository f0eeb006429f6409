package atomicfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/cage-qat/cage/internal/vfs"
)

// CheckOurs fails if there is something at path for which ours is false: somebody else's file, which must not be
// replaced. Callers look before their work begins, and again where it was stopped: ours must hold for what they write.
func CheckOurs(path vfs.Path, ours func(content io.Reader) bool) error {
	f, err := path.Open()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	// An error of reading is one of this package's file system, and not a word about whose the file is.
	content := &errorKeeper{r: f}
	own := ours(content)
	if err := errors.Join(content.err, f.Close()); err != nil {
		return err
	}
	if !own {
		return fmt.Errorf("%s is in the way: cage did not write it. Move it away, or choose another directory", path)
	}
	return nil
}

// Is tells whether content is the given one.
func Is(want []byte) func(content io.Reader) bool {
	return func(content io.Reader) bool {
		got, err := io.ReadAll(io.LimitReader(content, int64(len(want))+1))
		return err == nil && bytes.Equal(got, want)
	}
}

// Begins tells whether content begins so.
func Begins(with string) func(content io.Reader) bool {
	return func(content io.Reader) bool {
		got, err := io.ReadAll(io.LimitReader(content, int64(len(with))))
		return err == nil && string(got) == with
	}
}

// errorKeeper keeps the error of reading.
type errorKeeper struct {
	r   io.Reader
	err error
}

func (r *errorKeeper) Read(p []byte) (int, error) {
	n, err := r.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		r.err = err
	}
	return n, err
}
