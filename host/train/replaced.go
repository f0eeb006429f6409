package train

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/cage-qat/cage/internal/vfs"
)

// ErrReplaced is wrapped by the error of a run whose directory was removed, or replaced
// by another one, during training. Such a run writes nothing more.
var ErrReplaced = errors.New("the run directory was removed or replaced")

// checkDirectory fails when the lock that this run holds is not in its directory any
// more.
func (r *run) checkDirectory() error {
	dir := r.cfg.Train.Out
	held, err := r.lock.Stat()
	if err != nil {
		return fmt.Errorf("lock of %s: %w", dir, err)
	}
	found, err := r.dir.Lock().Stat()
	if err == nil && vfs.SameFile(held, found) {
		return nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("lock of %s: %w", dir, err)
	}
	return fmt.Errorf("%s: %w while this run was training in it: nothing more is written there", dir, ErrReplaced)
}
