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

// Find returns the first of the places that use accepts. If it accepts none, the error is
// a [*NotFoundError].
func (s Search) Find(path string, use func(place string) error) (string, error) {
	missing := &NotFoundError{Path: path}
	for _, place := range s.Places(path) {
		err := use(place)
		if err == nil {
			return place, nil
		}
		missing.Places = append(missing.Places, place)
		missing.Reasons = append(missing.Reasons, err)
	}
	return "", missing
}

// NotFoundError says where a file was looked for, and what was wrong at each place.
type NotFoundError struct {
	Path    string
	Places  []string
	Reasons []error
}

func (e *NotFoundError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s was not found; looked for", e.Path)
	for i, place := range e.Places {
		fmt.Fprintf(&b, "\n  %s", absolute(place))
		if err := e.Reasons[i]; !errors.Is(err, fs.ErrNotExist) {
			fmt.Fprintf(&b, " (there is one, but: %v)", err)
		}
	}
	return b.String()
}

// Unwrap returns the reasons.
func (e *NotFoundError) Unwrap() []error { return e.Reasons }
