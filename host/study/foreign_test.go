package study_test

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/host/study"
	"github.com/cage-qat/cage/internal/testing/testlevel"
	"github.com/cage-qat/cage/internal/testing/vfstest"
)

// foreign holds functions, by kind, that create at path a file or directory that no study made.
// Links lead to the directory mine.
var foreign = map[string]func(path, mine string) error{
	"file": func(path, _ string) error { return os.WriteFile(path, []byte("mine\n"), 0o600) },
	"sparse file": func(path, _ string) error {
		return errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, 20<<30))
	},
	"file of JSON": func(path, _ string) error {
		return os.WriteFile(path, []byte(`{"mine": 1}`), 0o600)
	},
	"link to a file": func(path, mine string) error {
		return os.Symlink(filepath.Join(mine, "notes"), path)
	},
	"hard link": func(path, mine string) error {
		return os.Link(filepath.Join(mine, "notes"), path)
	},
	"link to a directory": func(path, mine string) error {
		return os.Symlink(filepath.Join(mine, "folder"), path)
	},
	"link to nowhere": func(path, mine string) error {
		return os.Symlink(filepath.Join(mine, "absent"), path)
	},
	"named pipe":      func(path, _ string) error { return syscall.Mkfifo(path, 0o600) },
	"empty directory": func(path, _ string) error { return os.Mkdir(path, 0o700) },
	"directory": func(path, _ string) error {
		return errors.Join(os.Mkdir(path, 0o700),
			os.WriteFile(filepath.Join(path, "notes"), []byte("mine\n"), 0o600))
	},
}

// described returns the types and contents of everything at and below a path, by name.
func described(t *testing.T, root string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(path, root)
		out[name] = d.Type().String()
		var text []byte
		switch {
		case d.Type().IsRegular():
			var info fs.FileInfo
			if info, err = d.Info(); err == nil && info.Size() > 1<<30 {
				text = fmt.Append(nil, info.Size())
			} else if err == nil {
				text, err = os.ReadFile(path)
			}
		case d.Type()&fs.ModeSymlink != 0:
			var to string
			to, err = os.Readlink(path)
			text = []byte(to)
		}
		out[name] += string(text)
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return out
}

// TestForeignFiles checks that a study changes no file or directory that it did not make, even
// where it keeps its own, and nothing behind a link. The study works all the same, or the error
// names the obstacle.
func TestForeignFiles(t *testing.T) {
	const cell = "cells/CELL"
	every, tried := testlevel.Sample(61, 13, 1), 0
	always := []string{".claims/notes is a file", ".claims is a link to a directory",
		".claims/CELL is a link to a file",
		cell + "/train.log is a link to a file", ".claims/CELL is a sparse file"}
	for _, place := range []string{
		".lock", ".claims", ".claims/CELL", ".claims/notes", "study.toml", ".study.toml123", "cells",
		cell, "stale",
		cell + "/.lock", cell + "/cell.toml", cell + "/train.log", cell + "/failed.json", cell +
			"/.cell.toml7", cell + "/eval.log",
	} {
		for _, kind := range slices.Sorted(maps.Keys(foreign)) {
			for _, o := range []study.RunOptions{{}, {Share: true}, {Retry: true},
				{Share: true, Retry: true}} {
				what := place + " is a " + kind
				if tried++; tried%every != 0 && !(slices.Contains(always, what) && o.Share) {
					continue
				}
				dir := t.TempDir()
				mine, out := filepath.Join(dir, "mine"), filepath.Join(dir, "out")
				if err := errors.Join(os.MkdirAll(filepath.Join(mine, "folder"), 0o700),
					os.Mkdir(out, 0o700)); err != nil {
					t.Fatal(err)
				}
				for _, name := range []string{"notes", "folder/notes"} {
					write(t, filepath.Join(mine, name), "mine\n")
				}
				s := attempted{}.load(t, out)
				s.Files = vfstest.NoSync
				o.Command = []string{"sh", "-c", "echo learning; " + trainer, "sh"}
				o.Only = map[string][]string{"seed": {"0"}}
				at := filepath.Join(out, strings.Replace(place, "CELL", s.Cells[0].ID, 1))
				if o.Retry { // the cell has begun, and failed
					what += ", of a study that has begun"
					if place == cell+"/train.log" && strings.Contains(kind, "file") &&
						!strings.Contains(kind, "link") {
						continue // beside the cell's configuration, it counts as the study's own
					}
					failing := o
					failing.Command = []string{"sh", "-c", "exit 1"}
					if _, err := run(t, s, failing); err != nil {
						t.Fatal(err)
					}
				}
				if err := errors.Join(os.RemoveAll(at), os.MkdirAll(filepath.Dir(at), 0o700),
					foreign[kind](at, mine)); err != nil {
					t.Fatal(err)
				}
				before, theirs := described(t, at), described(t, mine)
				outcome, err := run(t, s, o)
				after := described(t, at)
				if len(after) == 0 { // it was put aside
					aside, _ := filepath.Glob(at + ".damaged-1")
					if len(aside) == 1 {
						after = described(t, aside[0])
					}
				}
				if err == nil && before[""] == fs.ModeDir.String() {
					for name := range after { // the study may add files to a directory
						if _, there := before[name]; !there {
							delete(after, name)
						}
					}
				}
				if diff := cmp.Diff(before, after); diff != "" {
					t.Errorf("%s, share %v: it has changed (-before +after):\n%s", what, o.Share, diff)
				}
				if diff := cmp.Diff(theirs, described(t, mine)); diff != "" {
					t.Errorf("%s, share %v: what it leads to has changed (-before +after):\n%s", what, o.Share,
						diff)
				}
				if err == nil && outcome.Done == 1 || err == nil && outcome.Failed == 1 && !o.Retry {
					continue
				}
				if err == nil || !strings.Contains(err.Error(), filepath.Base(at)) {
					t.Errorf("%s, share %v: %+v, %v", what, o.Share, outcome, err)
				}
			}
		}
	}
}
