package rundir

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
)

// Search finds the files outside a run directory that its configuration names.
type Search struct {
	Run  string // the run directory
	Made string // the working directory of the training; "" if it is not known
}

// Places lists the paths at which a file that the configuration calls path may be, best
// first: the path as it is, relative to the working directory; relative to the working
// directory of the training; in the run directory. An absolute path is the only place.
func (s Search) Places(path string) []string {
	places := []string{path}
	if filepath.IsAbs(path) {
		return places
	}
	known := []string{absolute(path)}
	for _, dir := range []string{s.Made, s.Run} {
		if dir == "" {
			continue
		}
		if place := absolute(filepath.Join(dir, path)); !slices.Contains(known, place) {
			known, places = append(known, place), append(places, place)
		}
	}
	return places
}

func absolute(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return filepath.Clean(path)
}

// Find returns the first of the places that use accepts. If it accepts none, the error says
// what was wrong at each place, and wraps that.
func (s Search) Find(path string, use func(place string) error) (string, error) {
	missing := &notFoundError{text: path + " was not found; looked for"}
	for _, place := range s.Places(path) {
		err := use(place)
		if err == nil {
			return place, nil
		}
		missing.text += "\n  " + absolute(place)
		if !errors.Is(err, fs.ErrNotExist) {
			missing.text += fmt.Sprintf(" (there is one, but: %v)", err)
		}
		missing.reasons = append(missing.reasons, err)
	}
	return "", missing
}

type notFoundError struct {
	text    string
	reasons []error // one for each place
}

func (e *notFoundError) Error() string   { return e.text }
func (e *notFoundError) Unwrap() []error { return e.reasons }

// Names are the names of run directories: the last part of their paths; of several with the same as many parts as tell them
// apart.
func Names(dirs []string) []string {
	paths, names := make([]string, len(dirs)), make([]string, len(dirs))
	for i, dir := range dirs {
		paths[i] = dir
		if abs, err := filepath.Abs(dir); err == nil {
			paths[i] = abs // of "." and ".." as well
		}
	}
	for i, path := range paths {
		names[i] = lastParts(path, 1)
	}
	for parts := 2; ; parts++ { // whole paths differ
		owner, shared := map[string]string{}, map[string]bool{}
		for i, name := range names {
			if other, taken := owner[name]; taken && other != paths[i] {
				shared[name] = true
			}
			owner[name] = paths[i]
		}
		if len(shared) == 0 {
			return names
		}
		for i, path := range paths {
			if shared[names[i]] {
				names[i] = lastParts(path, parts)
			}
		}
	}
}

func lastParts(path string, n int) string {
	parts := strings.Split(strings.Trim(filepath.ToSlash(path), "/"), "/")
	return strings.Join(parts[max(0, len(parts)-n):], "/")
}
