package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/cage-qat/cage/host/model/safetensors"
	"github.com/cage-qat/cage/internal/atomicfile"
	"github.com/cage-qat/cage/internal/vfs"
)

// Suffixes that a [Keeper] appends to the names of damaged checkpoints and of checkpoints with NaN
// or infinite values. Renamed files are no longer read or removed as checkpoints.
const (
	DamagedSuffix   = ".damaged"
	NotFiniteSuffix = ".notfinite"
)

// Keeper keeps a run's newest intact checkpoints, including the newest one that is finite. It
// renames and reports damaged checkpoints. Nothing else may write checkpoints into its directory;
// parts may be written, but not during Prune or Latest.
type Keeper struct {
	dir  vfs.Path
	keep int
	warn func(path vfs.Path, err error)
	// intact holds the checkpoints that this process has written or verified, with their file infos
	// at that time, so that unchanged files are not read again.
	intact map[string]verified // by name
}

type verified struct {
	files  map[vfs.Path]fs.FileInfo // the files of the checkpoint
	finite bool
}

// NewKeeper returns a Keeper that keeps the newest n checkpoints in dir, at least one. If warn is
// not nil, it is called with the new name of each checkpoint that was renamed.
func NewKeeper(dir vfs.Path, n int, warn func(path vfs.Path, err error)) *Keeper {
	if warn == nil {
		warn = func(vfs.Path, error) {}
	}
	return &Keeper{dir: dir, keep: max(1, n), warn: warn, intact: map[string]verified{}}
}

// Save is like the function [Save], for the keeper's directory.
func (k *Keeper) Save(ctx context.Context, s State, parts ...string) error {
	path, finite, err := save(ctx, k.dir, s, parts)
	if err == nil {
		k.note(path, parts, finite)
	}
	return err
}

// Latest calls the function [Latest] for the keeper's directory. If that succeeds, it renames the
// checkpoints that were skipped because they are damaged or not finite.
func (k *Keeper) Latest(use func(*File) error) error {
	var found []damagedFile
	note := func(path vfs.Path, err error) { found = append(found, damagedFile{path, err}) }
	err := Latest(k.dir, note, func(f *File) error {
		err := use(f)
		if err == nil && f.Verify() == nil { // tensors that use did not read may be damaged
			finite, _ := f.Finite()
			k.note(k.dir.Join(FileName(f.Step)), f.partNames(), finite)
		}
		return err
	})
	if err != nil {
		return err
	}
	return k.putAside(found)
}

// Prune removes older checkpoints than those to keep, and the files that a killed Save has left
// behind, including parts that no checkpoint lists. If no checkpoint is intact, it only removes the
// latter. If files cannot be removed, the next Prune tries again.
func (k *Keeper) Prune() error {
	entries, err := List(k.dir)
	if err != nil {
		return err
	}
	obsolete, err := atomicfile.Abandoned(k.dir, func(name string) bool {
		_, whole := stepOf(name)
		_, part := partStep(name)
		return whole || part
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil // nothing was saved yet
	}
	if err != nil {
		return fmt.Errorf("prune checkpoints: %w", err)
	}
	kept, old, found, err := k.sort(entries)
	errs := []error{err}
	if kept > 0 {
		errs = append(errs, k.putAside(found))
	}
	obsolete = append(obsolete, old...)
	remove := func(list []vfs.Path) {
		for _, path := range list {
			errs = append(errs, path.Remove())
			delete(k.intact, path.Name)
		}
	}
	remove(obsolete)
	orphans, err := k.orphans() // including the parts of the checkpoints just removed
	errs = append(errs, err)
	remove(orphans)
	if len(obsolete)+len(orphans) > 0 {
		errs = append(errs, k.dir.SyncDir())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("prune checkpoints: %w", err)
	}
	return nil
}

// RemoveAll removes the checkpoints in a directory, with their parts. Other files stay.
func RemoveAll(dir vfs.Path) error {
	entries, err := List(dir)
	if err != nil || len(entries) == 0 {
		return err
	}
	for _, e := range entries {
		f, err := Open(e.Path)
		if err == nil {
			err = errors.Join(f.Close(), e.Path.Remove())
		}
		if err != nil {
			return fmt.Errorf("remove checkpoints: %w", err)
		}
	}
	parts, err := (&Keeper{dir: dir}).orphans()
	for _, p := range parts {
		err = errors.Join(err, p.Remove())
	}
	return errors.Join(err, dir.SyncDir())
}

// sort classifies the checkpoints. It returns the number of intact ones to keep, those to remove
// (old), and the damaged ones. If none of the newest intact checkpoints is finite, the newest
// finite one is kept as well.
func (k *Keeper) sort(entries []Entry) (kept int, old []vfs.Path, found []damagedFile, err error) {
	finite := false
	for _, entry := range slices.Backward(entries) {
		enough := kept >= k.keep
		// Only the header of a checkpoint to be removed is verified: it must be a checkpoint.
		switch ok, e := k.verify(entry.Path, enough && finite); {
		case errors.Is(e, ErrDamaged):
			found = append(found, damagedFile{entry.Path, e})
		case e != nil: // it may be intact, so it is neither counted nor removed
			err = errors.Join(err, e)
		case !enough || ok && !finite:
			kept++
			finite = finite || ok
		default:
			old = append(old, entry.Path)
		}
	}
	return kept, old, found, err
}

// orphans returns the parts that no checkpoint needs.
func (k *Keeper) orphans() (list []vfs.Path, err error) {
	parts, err := listParts(k.dir)
	if err != nil || len(parts) == 0 {
		return nil, err
	}
	entries, err := List(k.dir)
	for _, p := range parts {
		needed := slices.ContainsFunc(entries, func(e Entry) bool {
			known, intact := k.intact[e.Path.Name]
			return e.Step == p.Step && (known.files[p.Path] != nil || !intact) // an unread one may need it
		})
		if needed || err != nil {
			continue
		}
		if f, e := safetensors.Open(p.Path); e == nil {
			if f.Metadata()[stepKey] == strconv.Itoa(p.Step) {
				list = append(list, p.Path)
			}
			err = f.Close()
		}
	}
	return list, err
}

// verify reports whether a checkpoint is finite. It reads the whole checkpoint, unless its files
// have not changed since they were written or verified, or only its header if header is set.
func (k *Keeper) verify(path vfs.Path, header bool) (finite bool, err error) {
	if known := k.intact[path.Name]; known.unchanged() {
		return known.finite, nil
	}
	delete(k.intact, path.Name)
	f, err := Open(path)
	switch {
	case err != nil:
		return false, err
	case header:
		return false, f.Close()
	}
	finite, err = f.Finite()
	if err := errors.Join(err, f.Verify(), f.Close()); err != nil {
		return false, err
	}
	k.note(path, f.partNames(), finite)
	return finite, nil
}

// note records that a checkpoint is intact, with its current file infos.
func (k *Keeper) note(path vfs.Path, parts []string, finite bool) {
	files := map[vfs.Path]fs.FileInfo{}
	for _, name := range append([]string{path.Base()}, parts...) {
		at := path.Dir().Join(name)
		info, err := at.Stat()
		if err != nil {
			return
		}
		files[at] = info
	}
	k.intact[path.Name] = verified{files, finite}
}

func (k verified) unchanged() bool {
	for path, then := range k.files {
		now, err := path.Stat()
		if err != nil || !vfs.SameFile(then, now) ||
			then.Size() != now.Size() || !then.ModTime().Equal(now.ModTime()) {
			return false
		}
	}
	return len(k.files) > 0
}

type damagedFile struct {
	path vfs.Path
	err  error
}

// putAside renames damaged or non-finite checkpoints, and their parts, to unused names.
func (k *Keeper) putAside(list []damagedFile) error {
	if len(list) == 0 {
		return nil
	}
	parts, err := listParts(k.dir)
	errs := []error{err}
	for _, d := range list {
		delete(k.intact, d.path.Name)
		suffix := DamagedSuffix
		if errors.Is(d.err, ErrNotFinite) {
			suffix = NotFiniteSuffix
		}
		name, err := k.dir.Unused(func(n int) string {
			if n == 1 {
				return d.path.Base() + suffix
			}
			return fmt.Sprint(d.path.Base(), suffix, n)
		})
		if err == nil {
			err = d.path.Rename(name)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("rename a checkpoint: %w", err))
			continue
		}
		step, _ := stepOf(d.path.Base())
		for _, p := range parts {
			if p.Step != step {
				continue
			}
			to := k.dir.Join(p.Path.Base() + strings.TrimPrefix(name.Base(), d.path.Base()))
			if _, err := to.Lstat(); errors.Is(err, fs.ErrNotExist) { // else of another attempt
				errs = append(errs, p.Path.Rename(to))
			}
		}
		k.warn(name, d.err)
	}
	return errors.Join(append(errs, k.dir.SyncDir())...)
}
