package crashfs

import (
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// Lose creates, in the empty directory at path to, a state of the root that a power failure after
// the first m events could have left. Seed 0 keeps no unsynced changes, seed 1 keeps all of them,
// and other seeds keep different parts.
func (f *FS) Lose(m int, seed uint64, to string) error {
	f.mu.Lock()
	events := slices.Clone(f.events[:f.base+m])
	f.mu.Unlock()
	d := &disk{map[int]*inode{}, map[int]*directory{0: {names: map[string]int{}}}}
	for _, e := range events {
		d.do(e)
	}
	d.lose(seed, uint64(m))
	return d.materialize(0, to)
}

// disk is the synced state and the pending changes, which may be lost.
type disk struct {
	files map[int]*inode
	dirs  map[int]*directory
}

type inode struct {
	content []byte
	pending []event // writes and truncations that were not synced
}

type directory struct {
	names   map[string]int
	pending []event // links, unlinks and renames that were not synced
}

func (d *disk) do(e event) {
	switch e.kind {
	case link:
		if e.isDir {
			d.dirs[e.id] = &directory{names: map[string]int{}}
		} else {
			d.files[e.id] = &inode{}
		}
		fallthrough
	case unlink, rename:
		dir := d.dirs[e.dir]
		dir.pending = append(dir.pending, e)
	case write, truncate:
		file := d.files[e.id]
		file.pending = append(file.pending, e)
	case syncFile:
		file := d.files[e.id]
		for _, p := range file.pending {
			file.apply(p)
		}
		file.pending = nil
	case syncDir:
		dir := d.dirs[e.dir]
		for _, p := range dir.pending {
			dir.apply(p)
		}
		dir.pending = nil
	}
}

func (n *inode) apply(e event) {
	if e.kind == truncate {
		n.resize(e.offset)
		return
	}
	n.resize(max(int64(len(n.content)), e.offset+int64(len(e.data))))
	copy(n.content[e.offset:], e.data)
}

func (n *inode) resize(size int64) {
	grown := make([]byte, size)
	copy(grown, n.content)
	n.content = grown
}

func (d *directory) apply(e event) {
	switch e.kind {
	case link:
		d.names[e.name] = e.id
	case unlink:
		delete(d.names, e.name)
	case rename:
		delete(d.names, e.from)
		d.names[e.name] = e.id
	}
}

// lose keeps some of the pending changes of all files and directories.
func (d *disk) lose(seed, moment uint64) {
	if seed == 0 {
		return
	}
	random := rand.New(rand.NewPCG(seed, moment))
	for id := range 1 + len(d.files) + len(d.dirs) { // in a fixed order
		if file := d.files[id]; file != nil {
			file.lose(random, seed == 1)
		}
		if dir := d.dirs[id]; dir != nil {
			dir.lose(random, seed == 1)
		}
	}
}

// lose keeps all name changes, the first few, or any of them.
func (d *directory) lose(random *rand.Rand, all bool) {
	first, some := len(d.pending), !all && random.IntN(2) == 0
	if !all {
		first = random.IntN(len(d.pending) + 1)
	}
	for i, e := range d.pending {
		if some && random.IntN(2) == 0 || !some && i < first {
			d.apply(e)
		}
	}
}

// lose keeps all writes, or the first few; later ones may have written garbage.
func (n *inode) lose(random *rand.Rand, all bool) {
	first := len(n.pending)
	if !all {
		first = random.IntN(len(n.pending) + 1)
	}
	for _, e := range n.pending[:first] {
		n.apply(e)
	}
	if first == len(n.pending) {
		return
	}
	switch random.IntN(4) {
	case 0: // nothing
	case 1: // a part of the next write
		if e := n.pending[first]; e.kind == write {
			e.data = e.data[:random.IntN(len(e.data))]
			n.apply(e)
		}
	default: // the ranges of the others, with garbage or zeros
		garbage := random.IntN(2) == 0
		for _, e := range n.pending[first:] {
			if e.kind == write {
				e.data = make([]byte, len(e.data))
				for i := range e.data {
					if garbage {
						e.data[i] = byte(random.Uint32())
					}
				}
				n.apply(e)
			}
		}
	}
}

// materialize writes a directory and its content to disk.
func (d *disk) materialize(id int, to string) error {
	var errs []error
	for name, child := range d.dirs[id].names {
		path := filepath.Join(to, name)
		if d.dirs[child] != nil {
			errs = append(errs, os.Mkdir(path, 0o755), d.materialize(child, path))
			continue
		}
		errs = append(errs, os.WriteFile(path, d.files[child].content, 0o644))
	}
	return errors.Join(errs...)
}

// Each yields directories that a power failure could have left, one for each moment and seed, with
// a description of each. It fails the test if there are fewer than least.
func (f *FS) Each(t testing.TB, seeds uint64, least int) iter.Seq2[string, string] {
	return func(yield func(dir, what string) bool) {
		states := 0
		for m := range f.Moments() + 1 {
			for seed := range seeds {
				dir := t.TempDir()
				if err := f.Lose(m, seed, dir); err != nil {
					t.Fatal(err)
				}
				states++
				if !yield(dir, fmt.Sprintf("power lost at moment %d, seed %d", m, seed)) {
					return
				}
			}
		}
		if states < least {
			t.Errorf("tried %d states, want at least %d", states, least)
		}
		t.Logf("%d moments, %d states", f.Moments(), states)
	}
}
