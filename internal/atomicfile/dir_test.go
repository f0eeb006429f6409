package atomicfile_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/internal/atomicfile"
	"github.com/cage-qat/cage/internal/testing/crashfs"
	"github.com/cage-qat/cage/internal/testing/faultfs"
	"github.com/cage-qat/cage/internal/testing/testlevel"
	"github.com/cage-qat/cage/internal/testing/vfstest"
	"github.com/cage-qat/cage/internal/vfs"
)

// fill writes two files, one of them in a subdirectory.
func fill(dir vfs.Path) error {
	if err := atomicfile.WriteBytes(dir.Join("a"), []byte("first")); err != nil {
		return err
	}
	if err := dir.Join("below").MkdirAll(); err != nil {
		return err
	}
	return atomicfile.WriteBytes(dir.Join("below", "b"), []byte("second"))
}

var filled = map[string]string{"a": "first", "below/b": "second"}

// put writes files below a directory.
func put(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func check(t *testing.T, what, dir string, want map[string]string) {
	t.Helper()
	if diff := cmp.Diff(want, vfstest.Contents(t, dir)); diff != "" {
		t.Errorf("%s: %s differs:\n%s", what, dir, diff)
	}
}

// TestForeign checks that CheckDir and WriteDir refuse a file, link or directory that cage did not
// create in place of the temporary directory, and change neither it nor the target of a link.
func TestForeign(t *testing.T) {
	for what, lay := range map[string]func(t *testing.T, root string){
		"a symbolic link": func(t *testing.T, root string) {
			if err := os.Symlink("precious", filepath.Join(root, "out.incomplete")); err != nil {
				t.Fatal(err)
			}
		},
		"a symbolic link to what cage left": func(t *testing.T, root string) {
			put(t, root, map[string]string{"precious/" + atomicfile.Mark: ""})
			if err := os.Symlink("precious", filepath.Join(root, "out.incomplete")); err != nil {
				t.Fatal(err)
			}
		},
		"a directory without": func(t *testing.T, root string) {
			put(t, root, map[string]string{"out.incomplete/notes": "mine",
				"out.incomplete/sub/more": "mine, too"})
		},
		"a directory without " + atomicfile.Mark: func(t *testing.T, root string) {
			put(t, root, map[string]string{"out.incomplete/" + atomicfile.Mark +
				"/notes": "a directory of that name is no mark"})
		},
		"a file": func(t *testing.T, root string) {
			put(t, root, map[string]string{"out.incomplete": "mine"})
		},
	} {
		root := t.TempDir()
		put(t, root, map[string]string{"precious/f": "keep", "precious/sub/g": "keep"})
		lay(t, root)
		before := vfstest.Contents(t, root)
		out := vfs.At(filepath.Join(root, "out"))
		for _, err := range []error{atomicfile.CheckDir(out), atomicfile.WriteDir(out, fill)} {
			if err == nil || !strings.Contains(err.Error(),
				"out.incomplete already exists and is "+strings.TrimSuffix(what, " to what cage left")) &&
				!strings.Contains(err.Error(), what) ||
				!strings.Contains(err.Error(), "move it away, or choose another --out") {
				t.Errorf("%s: %v", what, err)
			}
		}
		check(t, what, root, before)
	}
}

// TestLeft checks that WriteDir replaces an empty directory and the remains of a killed process. It
// must remove links in them without following them.
func TestLeft(t *testing.T) {
	for _, left := range []map[string]string{{}, {atomicfile.Mark: ""},
		{atomicfile.Mark: "", "a": "ha", "old/deep/c": "x"}} {
		root := t.TempDir()
		dir := filepath.Join(root, "out.incomplete")
		put(t, root, map[string]string{"precious/f": "keep"})
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		put(t, dir, left)
		if len(left) > 1 {
			if err := os.Symlink("../precious", filepath.Join(dir, "link")); err != nil {
				t.Fatal(err)
			}
		}
		if err := atomicfile.WriteDir(vfs.At(filepath.Join(root, "out")+"/"), fill); err != nil {
			t.Fatal(err)
		}
		check(t, "replaced", root, map[string]string{"precious/f": "keep", "out/a": "first",
			"out/below/b": "second"})
	}
}

// TestThere checks that WriteDir refuses an existing directory or link. It must change nothing,
// except that it removes the mark of a complete directory unless the mark is locked.
func TestThere(t *testing.T) {
	root := t.TempDir()
	out := vfs.At(filepath.Join(root, "out"))
	refused := func(what string, want map[string]string) {
		t.Helper()
		if err := atomicfile.WriteDir(out, fill); !errors.Is(err, fs.ErrExist) ||
			!strings.Contains(err.Error(), "give another --out") {
			t.Errorf("%s: %v", what, err)
		}
		check(t, what, root, want)
	}
	put(t, root, map[string]string{"out/f": "keep", "out/" + atomicfile.Mark: ""})
	refused("killed after the renaming", map[string]string{"out/f": "keep"})
	put(t, root, map[string]string{"out/" + atomicfile.Mark: ""})
	lock, err := out.Join(atomicfile.Mark).Lock()
	if err != nil {
		t.Fatal(err)
	}
	refused("another process renames it",
		map[string]string{"out/f": "keep", "out/" + atomicfile.Mark: ""})
	if err := errors.Join(lock.Unlock(), out.RemoveAll(),
		os.Symlink("nowhere", out.Name)); err != nil {
		t.Fatal(err)
	}
	if err := atomicfile.WriteDir(out, fill); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a link that leads nowhere: %v", err)
	}
	if _, err := os.Lstat(out.Name); err != nil {
		t.Error(err)
	}
}

// TestOneAtATime checks that a second WriteDir is refused while the directory is written, and
// changes nothing.
func TestOneAtATime(t *testing.T) {
	root := t.TempDir()
	out := vfs.At(filepath.Join(root, "out"))
	busy := func(want bool) {
		t.Helper()
		if got, err := atomicfile.BusyDir(out); got != want || err != nil {
			t.Errorf("busy: %v, %v", got, err)
		}
	}
	busy(false)
	err := atomicfile.WriteDir(out, func(dir vfs.Path) error {
		busy(true)
		if err := fill(dir); err != nil {
			return err
		}
		if err := atomicfile.WriteDir(out, fill); !errors.Is(err, vfs.ErrLocked) {
			t.Errorf("twice at once: %v", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	busy(false)
	check(t, "made once", root, map[string]string{"out/a": "first", "out/below/b": "second"})
}

// TestFailedDir checks that nothing is left if fill returns an error.
func TestFailedDir(t *testing.T) {
	root := t.TempDir()
	failed := errors.New("failed")
	if err := atomicfile.WriteDir(vfs.At(filepath.Join(root, "out")),
		func(dir vfs.Path) error { return errors.Join(fill(dir), failed) }); !errors.Is(err, failed) {
		t.Errorf("error %v", err)
	}
	if left, err := os.ReadDir(root); err != nil || len(left) > 0 {
		t.Errorf("left are %v, %v", left, err)
	}
}

// again calls WriteDir again. The directory must already be complete or be created now, and nothing
// else may be left.
func again(t *testing.T, what, root string) {
	t.Helper()
	out := vfs.At(filepath.Join(root, "out"))
	_, missing := os.Stat(out.Name)
	if err := atomicfile.WriteDir(out, fill); (missing != nil) != (err == nil) || err != nil &&
		!errors.Is(err, fs.ErrExist) {
		t.Errorf("%s: the next call: %v", what, err)
	}
	check(t, what, out.Name, filled)
	if left, err := os.ReadDir(root); err != nil || len(left) != 1 {
		t.Errorf("%s: left are %v, %v", what, left, err)
	}
}

// TestDirFaults makes each file operation fail, alone or with all later ones. The error must be
// reported, and a second call must succeed. Half of the directories replace the remains of a killed
// process.
func TestDirFaults(t *testing.T) {
	testlevel.Long(t, "it tries every operation")
	for _, left := range []bool{false, true} {
		for files := range faultfs.Each(t, 1, 25) {
			root := t.TempDir()
			if left {
				put(t, root, map[string]string{"out.incomplete/" + atomicfile.Mark: "",
					"out.incomplete/old": "x", "out.incomplete/deep/old": "x"})
			}
			err := atomicfile.WriteDir(vfs.On(files, filepath.Join(root, "out")), fill)
			again(t, files.Reported(t, err), root)
		}
	}
}

// TestDirPowerLoss checks that a second call succeeds after a power failure at any moment, also
// while a failed directory is removed.
func TestDirPowerLoss(t *testing.T) {
	failed := errors.New("failed")
	for _, end := range []error{nil, failed} {
		for _, left := range []bool{false, true} {
			root := t.TempDir()
			if left {
				put(t, root, map[string]string{"out.incomplete/" + atomicfile.Mark: "",
					"out.incomplete/old": "x"})
			}
			files, err := crashfs.New(root)
			if err != nil {
				t.Fatal(err)
			}
			if err := atomicfile.WriteDir(vfs.On(files, filepath.Join(root, "out")),
				func(dir vfs.Path) error { return errors.Join(fill(dir), end) }); !errors.Is(err, end) {
				t.Fatal(err)
			}
			for lost, what := range files.Each(t, uint64(testlevel.Choose(1, 6)), 15) {
				again(t, what, lost)
			}
		}
	}
}
