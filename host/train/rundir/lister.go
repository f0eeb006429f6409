package rundir

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/cage-qat/cage/internal/vfs"
)

// Lister lists the runs below directories repeatedly, for programs that watch them. What
// has not changed is not read again, and nothing is written.
type Lister struct {
	roots []string

	mu    sync.Mutex
	known []map[string]entry // by root and directory
}

// NewLister makes a lister of the runs below the roots. A root that does not exist yet
// has no runs.
func NewLister(roots ...string) *Lister {
	l := &Lister{known: make([]map[string]entry, len(roots))}
	for i, root := range roots {
		l.roots = append(l.roots, filepath.Clean(root))
		l.known[i] = load(vfs.At(root).Join(indexFile)).runs(l.roots[i])
	}
	return l
}

// List is the function [List] for the lister's roots, except that it goes on to its end
// whoever is waiting: what it has read is known to those who ask next. The returned runs
// belong to the caller.
func (l *Lister) List() ([]*Run, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []*Run
	seen := map[string]bool{}
	for i, root := range l.roots {
		if _, err := os.Stat(root); errors.Is(err, fs.ErrNotExist) {
			l.known[i] = nil
			continue
		}
		list, _, err := scan(context.Background(), root, l.known[i])
		if err != nil {
			return nil, err
		}
		l.known[i] = make(map[string]entry, len(list))
		for _, e := range list {
			l.known[i][e.run.Dir] = e
			if !seen[e.run.Dir] {
				seen[e.run.Dir] = true
				r := *e.run
				r.lookWhetherRunning()
				all = append(all, &r)
			}
		}
	}
	slices.SortFunc(all, func(a, b *Run) int { return strings.Compare(a.Dir, b.Dir) })
	return all, nil
}
