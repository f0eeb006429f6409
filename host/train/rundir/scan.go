package rundir

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"runtime"

	"golang.org/x/sync/errgroup"

	"github.com/cage-qat/cage/internal/vfs"
)

// entry is a run with the stamps that its files had when it was read.
type entry struct {
	run    *Run
	stamps stamps
}

// scan finds the runs below a root and reads those that are not known as they are now.
func scan(ctx context.Context, root string, known map[string]entry) (list []entry, err error) {
	var fresh []int
	var walk func(dir string) error
	walk = func(dir string) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		e, isKnown := known[dir]
		if s, ok := stampsOf(dir, e); ok {
			// What cannot be read may be readable later, without any change of its files.
			if !isKnown || e.stamps != s || e.run.State == Unreadable {
				e = entry{run: &Run{Dir: dir}, stamps: s}
				fresh = append(fresh, len(list))
			}
			list = append(list, e)
			return nil // a run has no runs inside
		}
		children, err := vfs.At(dir).ReadDir()
		if err != nil {
			if dir != root && (errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist)) {
				return nil
			}
			return err
		}
		for _, child := range children {
			if child.IsDir() {
				if err := walk(filepath.Join(dir, child.Name())); err != nil {
					return err
				}
			}
		}
		return nil
	}
	if err := walk(root); err != nil {
		return nil, err
	}
	var readers errgroup.Group
	readers.SetLimit(2 * runtime.GOMAXPROCS(0))
	for _, i := range fresh {
		readers.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			list[i] = read(list[i].run.Dir, list[i].stamps)
			return nil
		})
	}
	return list, readers.Wait()
}
