package plugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sync/errgroup"

	"github.com/cage-qat/cage/internal/schema"
	"github.com/cage-qat/cage/sdk"
)

// PathVariable is the environment variable with the directories to search first, separated as in
// PATH.
const PathVariable = "CAGE_PLUGIN_PATH"

// Finder finds plugins by name. A plugin is an executable file, or a directory with a Go main
// package, which is built when needed.
type Finder struct {
	// Dirs are the directories to search, in order.
	Dirs []string
	// CacheDir is the directory for executables built from Go packages.
	CacheDir string
	// Notify, if not nil, is called with progress messages about slow operations, such as builds
	// and downloads. Concurrent calls of Find may call it concurrently.
	Notify func(message string)
	// Launch starts the plugin that [Finder.Start] has found; nil means [Start].
	Launch func(ctx context.Context, exe Executable, kind sdk.Kind, opts Options) (*Client, error)
}

// NewFinder returns a Finder that searches the directories in CAGE_PLUGIN_PATH, then plugins/
// beside this executable, then plugins/ in the working directory. It stores builds in the user's
// cache directory.
func NewFinder() (*Finder, error) {
	dirs := filepath.SplitList(os.Getenv(PathVariable))
	if self, err := os.Executable(); err == nil {
		if real, err := filepath.EvalSymlinks(self); err == nil {
			self = real
		}
		dirs = append(dirs, filepath.Join(filepath.Dir(self), "plugins"))
	}
	dirs = append(dirs, "plugins")
	f := &Finder{}
	for _, d := range dirs {
		abs, err := filepath.Abs(d)
		if err != nil {
			return nil, fmt.Errorf("plugin directory %s: %w", d, err)
		}
		if d != "" && !slices.Contains(f.Dirs, abs) {
			f.Dirs = append(f.Dirs, abs)
		}
	}
	if cache, err := os.UserCacheDir(); err == nil {
		f.CacheDir = filepath.Join(cache, "cage", "plugins")
	}
	return f, nil
}

// Defaults returns its arguments, but replaces a nil logger with one that discards messages, and a
// nil finder with a new one that logs its progress messages.
func Defaults(finder *Finder, log hclog.Logger) (*Finder, hclog.Logger, error) {
	log = cmp.Or(log, hclog.NewNullLogger())
	if finder != nil {
		return finder, log, nil
	}
	finder, err := NewFinder()
	if err == nil {
		finder.Notify = Inform(log)
	}
	return finder, log, err
}

// Inform returns a function for [Finder].Notify that logs messages at level info.
func Inform(log hclog.Logger) func(string) {
	return func(message string) { log.Info(message) }
}

// Find finds a plugin by name or, if name contains a slash, by path, and builds it if necessary. If
// there is none, the error suggests existing names. Errors are [*Error].
func (f *Finder) Find(ctx context.Context, name string) (Executable, error) {
	if strings.ContainsRune(name, filepath.Separator) {
		return f.at(ctx, name, name)
	}
	if name == "" || name == "." || name == ".." {
		return Executable{}, &Error{Plugin: fmt.Sprintf("%q", name), Kind: ErrNotFound,
			Err: errors.New("invalid plugin name")}
	}
	var looked []string
	for _, dir := range f.Dirs {
		exe, err := f.at(ctx, name, filepath.Join(dir, name))
		if err == nil || !errors.Is(err, ErrNotFound) {
			return exe, err
		}
		note := dir
		if _, statErr := os.Stat(dir); statErr != nil {
			note += " (no such directory)"
		} else if typed, ok := errors.AsType[*Error](err); ok && !errors.Is(err, os.ErrNotExist) {
			note += fmt.Sprintf(" (exists, but %v)", typed.Err)
		}
		looked = append(looked, note)
	}
	known, hint := f.Names(), "there are none"
	if near := schema.Nearest(name, known); near != "" {
		hint = fmt.Sprintf("did you mean %q?", near)
	} else if len(known) > 0 {
		hint = "there are " + strings.Join(known, ", ")
	}
	return Executable{}, &Error{Plugin: name, Kind: ErrNotFound,
		Err: fmt.Errorf("not found (%s); looked in\n  %s", hint, strings.Join(looked, "\n  "))}
}

func (f *Finder) at(ctx context.Context, name, path string) (Executable, error) {
	fail := func(kind, err error) (Executable, error) {
		return Executable{}, &Error{Plugin: name, Path: path, Kind: kind, Err: err}
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return fail(ErrNotFound, err)
	}
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return fail(ErrNotFound, err)
	case info.IsDir() && holdsMain(path):
		exe, err := f.build(ctx, name, path)
		if err != nil {
			return fail(ErrBuild, err)
		}
		return exe, nil
	case info.IsDir():
		return fail(ErrNotFound, errors.New("the directory contains no Go main package"))
	case !executable(info):
		return fail(ErrNotFound, errors.New("the file cannot be executed (chmod +x?)"))
	}
	return Executable{Name: name, Path: path}, nil
}

// Names returns the sorted names of all plugins in Dirs, without building any.
func (f *Finder) Names() []string {
	var names []string
	for _, dir := range f.Dirs {
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, e := range entries {
			path := filepath.Join(dir, e.Name())
			info, err := os.Stat(path)
			hidden := strings.HasPrefix(e.Name(), ".")
			if err == nil && !hidden && (info.IsDir() && holdsMain(path) || executable(info)) {
				names = append(names, e.Name())
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func executable(info os.FileInfo) bool {
	return info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0
}

// Listing is a plugin listed by [Finder.List].
type Listing struct {
	Executable
	// Kind and Description are reported by the plugin, or zero if Err is not nil. A plugin that is
	// both a quantizer and an optimizer is listed twice.
	Kind        sdk.Kind
	Description sdk.Description
	// Err is the reason why the plugin cannot be used.
	Err error
}

// List starts every plugin that can be found by name, requests its descriptions and stops it. The
// result is sorted by name and kind.
func (f *Finder) List(ctx context.Context, opts Options) []Listing {
	names := f.Names()
	found := make([][]Listing, len(names))
	var group errgroup.Group
	group.SetLimit(4)
	for i, name := range names {
		group.Go(func() error {
			found[i] = f.examine(ctx, name, opts)
			return nil
		})
	}
	_ = group.Wait() // no error is ever returned
	all := slices.Concat(found...)
	slices.SortFunc(all, func(a, b Listing) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(b.Kind, a.Kind))
	})
	return all
}

func (f *Finder) examine(ctx context.Context, name string, opts Options) []Listing {
	exe, err := f.Find(ctx, name)
	if err != nil {
		return []Listing{{Executable: Executable{Name: name}, Err: err}}
	}
	c, err := Start(ctx, exe, "", opts)
	if err != nil {
		return []Listing{{Executable: exe, Err: err}}
	}
	defer c.Close()
	var found []Listing
	for kind, d := range c.info {
		found = append(found, Listing{Executable: exe, Kind: kind, Description: d})
	}
	return found
}

// Start finds a plugin by name or path and starts it; see [Finder.Find] and [Start].
func (f *Finder) Start(ctx context.Context, name string, kind sdk.Kind,
	opts Options) (*Client, error) {
	exe, err := f.Find(ctx, name)
	if err != nil {
		return nil, err
	}
	if f.Launch != nil {
		return f.Launch(ctx, exe, kind, opts)
	}
	return Start(ctx, exe, kind, opts)
}
