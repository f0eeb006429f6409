package rundir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// Lister lists runs repeatedly, for programs that watch them: what has not changed is not
// read again. The zero value is ready to use.
type Lister struct {
	mu    sync.Mutex
	known map[string]entry // by directory
}

// List returns the runs below the roots, as a [Lister] does.
func List(ctx context.Context, roots ...string) ([]*Run, error) {
	return new(Lister).List(ctx, roots...)
}

// List returns the runs below the roots, sorted by directory. A root may be a run itself;
// a root that does not exist is an error. Runs that cannot be read are listed with the
// reason. It ends early with the context. The returned runs belong to the caller.
func (l *Lister) List(ctx context.Context, roots ...string) ([]*Run, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	found := map[string]entry{}
	for _, root := range roots {
		if info, err := os.Stat(root); err != nil || !info.IsDir() {
			if err == nil || errors.Is(err, fs.ErrNotExist) {
				err = fmt.Errorf("there is no directory %s", root)
			}
			return nil, err
		}
		list, err := scan(ctx, filepath.Clean(root), l.known)
		if err != nil {
			return nil, err
		}
		for _, e := range list {
			found[e.run.Dir] = e
		}
	}
	l.known = found
	var all []*Run
	for _, e := range found {
		r := *e.run
		r.lookWhetherRunning()
		all = append(all, &r)
	}
	slices.SortFunc(all, func(a, b *Run) int { return strings.Compare(a.Dir, b.Dir) })
	return all, nil
}
