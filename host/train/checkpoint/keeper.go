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

// DamagedSuffix ends the name of a damaged checkpoint that was put aside, and NotFiniteSuffix that
// of one that is not finite. Such a file is no longer a checkpoint; nothing reads or removes it.
const (
	DamagedSuffix   = ".damaged"
	NotFiniteSuffix = ".notfinite"
)

// Keeper keeps the newest checkpoints of one run, and the newest one that is finite. Only intact
// ones count: a damaged one is renamed and reported. Meanwhile, nothing else may write into the
// directory, except that other processes write parts while this one neither prunes nor looks for
// the latest.
type Keeper struct {
	dir  vfs.Path
	keep int
	tell func(path vfs.Path, err error)
	// intact are the checkpoints that this process has written or verified, as their files
	// were then: they are not read again.
	intact map[string]known // by name
}

type known struct {
	files  map[vfs.Path]fs.FileInfo // that it consists of, by their paths
	finite bool
}

// NewKeeper returns a Keeper that keeps at most keep checkpoints in dir, and at least 1. tell,
// unless nil, is called for each damaged checkpoint that is found, and for each that is passed over
// because it is not finite, with its new name.
func NewKeeper(dir vfs.Path, keep int, tell func(path vfs.Path, err error)) *Keeper {
	if tell == nil {
		tell = func(vfs.Path, error) {}
	}
	return &Keeper{dir: dir, keep: max(1, keep), tell: tell, intact: map[string]known{}}
}

// Save is the function [Save] for the keeper's directory.
func (k *Keeper) Save(ctx context.Context, s State, parts ...string) error {
	path, finite, err := save(ctx, k.dir, s, parts)
	if err != nil {
		return err
	}
	k.note(path, parts, finite)
	return nil
}

// Latest is the function [Latest] for the keeper's directory. Checkpoints newer than the one that
// is used, which are damaged or not finite, are put aside; if there is no intact one, all stay as
// they are.
func (k *Keeper) Latest(use func(*File) error) error {
	var found []damagedFile
	err := Latest(k.dir, func(path vfs.Path, err error) { found = append(found, damagedFile{path, err}) }, func(f *File) error {
		err := use(f)
		if err == nil && f.Verify() == nil { // what was not used may be damaged
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

// Prune removes the checkpoints that are older than the intact ones to keep, and what a
// killed Save left behind, parts that no checkpoint names included. It removes nothing if no
// checkpoint is intact, but for the latter. What it fails to remove, a later Prune removes.
func (k *Keeper) Prune() error {
	entries, err := List(k.dir)
	if err != nil {
		return err
	}
	doomed, err := atomicfile.Abandoned(k.dir, func(name string) bool {
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
	doomed = append(doomed, old...)
	remove := func(list []vfs.Path) {
		for _, path := range list {
			errs = append(errs, path.Remove())
			delete(k.intact, path.Name)
		}
	}
	remove(doomed)
	orphans, err := k.orphans() // also those of the checkpoints that are removed by now
	errs = append(errs, err)
	remove(orphans)
	if len(doomed)+len(orphans) > 0 {
		errs = append(errs, k.dir.SyncDir())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("prune checkpoints: %w", err)
	}
	return nil
}

// sort divides the checkpoints: the number of intact ones that are kept, those that are removed,
// and the damaged among the others. If none of the newest is finite, one more is kept, the newest
// that is.
func (k *Keeper) sort(entries []Entry) (kept int, old []vfs.Path, found []damagedFile, err error) {
	finite := false
	for _, entry := range slices.Backward(entries) {
		enough := kept >= k.keep
		if enough && finite {
			e := error(nil)
			if !k.intact[entry.Path.Name].unchanged() { // looks like a checkpoint, so far as its header says
				var f *File
				if f, e = Open(entry.Path); e == nil {
					e = f.Close()
				}
			}
			switch {
			case e == nil:
				old = append(old, entry.Path)
			case errors.Is(e, ErrDamaged): // or no checkpoint at all
				found = append(found, damagedFile{entry.Path, e})
			default:
				err = errors.Join(err, e)
			}
			continue
		}
		switch ok, e := k.verify(entry.Path); {
		case e == nil && (ok || !enough):
			kept++
			finite = finite || ok
		case e == nil:
			old = append(old, entry.Path)
		case errors.Is(e, ErrDamaged):
			found = append(found, damagedFile{entry.Path, e})
		default: // it may be good, so it neither counts nor goes
			err = errors.Join(err, e)
		}
	}
	return kept, old, found, err
}

// orphans are the parts that no checkpoint consists of. What only has the name of a part is none.
func (k *Keeper) orphans() (list []vfs.Path, err error) {
	parts, err := listParts(k.dir)
	if err != nil || len(parts) == 0 {
		return nil, err
	}
	entries, err := List(k.dir)
	for _, p := range parts {
		needed := slices.ContainsFunc(entries, func(e Entry) bool {
			known, intact := k.intact[e.Path.Name]
			return e.Step == p.Step && (known.files[p.Path] != nil || !intact) // what could not be read may be good
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

// verify reads a checkpoint if it has changed since it was last known to be intact, and reports
// whether it is finite.
func (k *Keeper) verify(path vfs.Path) (finite bool, err error) {
	if known := k.intact[path.Name]; known.unchanged() {
		return known.finite, nil
	}
	delete(k.intact, path.Name)
	f, err := Open(path)
	if err != nil {
		return false, err
	}
	finite, err = f.Finite()
	if err := errors.Join(err, f.Verify(), f.Close()); err != nil {
		return false, err
	}
	k.note(path, f.partNames(), finite)
	return finite, nil
}

// note remembers the files of an intact checkpoint as they are now.
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
	k.intact[path.Name] = known{files, finite}
}

func (k known) unchanged() bool {
	for path, then := range k.files {
		now, err := path.Stat()
		if err != nil || !vfs.SameFile(then, now) || then.Size() != now.Size() || !then.ModTime().Equal(now.ModTime()) {
			return false
		}
	}
	return len(k.files) > 0
}

type damagedFile struct {
	path vfs.Path
	err  error
}

// putAside gives such checkpoints, and their parts, names that no other file has.
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
			errs = append(errs, fmt.Errorf("put a checkpoint aside: %w", err))
			continue
		}
		step, _ := stepOf(d.path.Base())
		for _, p := range parts {
			if p.Step != step {
				continue
			}
			to := k.dir.Join(p.Path.Base() + strings.TrimPrefix(name.Base(), d.path.Base()))
			if _, err := to.Lstat(); errors.Is(err, fs.ErrNotExist) { // otherwise it is of another attempt
				errs = append(errs, p.Path.Rename(to))
			}
		}
		k.tell(name, d.err)
	}
	return errors.Join(append(errs, k.dir.SyncDir())...)
}
