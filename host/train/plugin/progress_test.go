package plugin

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cage-qat/cage/internal/testing/testlevel"
	"github.com/cage-qat/cage/sdk"
)

// brief is a time limit for plugins of which some hang: all others must answer within it where they
// do not work.
const brief = time.Second

// work keeps a processor busy until this plugin has used it for so long.
func work(d time.Duration) {
	group := syscall.Getpgrp()
	for begin := processorTime(group); processorTime(group)-begin < d; {
		for x := range 1 << 20 {
			_ = x * x
		}
	}
}

// TestSlowStart checks that a plugin which works is waited for, however long that takes, also where
// it works in a child process, and that one which does not is given up.
func TestSlowStart(t *testing.T) {
	testlevel.Long(t, "waits for plugins that work")
	t.Parallel()
	c := start(t, "works-long", sdk.KindQuantizer, Options{StartTimeout: brief,
		CallTimeout: brief})
	if used := processorTime(c.PID()); used < 2*brief {
		t.Errorf("it was ready after %v of work", used)
	}
	_, err := c.Quantize(t.Context(), site("work"))
	if err != nil {
		t.Error(err)
	}
	_, err = c.Quantize(t.Context(), site("hang"))
	check(t, err, ErrTimeout, "did not answer within 1s")

	path := filepath.Join(t.TempDir(), "wrapper")
	script := fmt.Sprintf("#!/bin/sh\n%s <&0\nexit $?\n", link(t, "works-long").Path)
	if err := os.WriteFile(path, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	inChild, err := Start(t.Context(), direct(path), sdk.KindQuantizer,
		Options{StartTimeout: brief})
	if err != nil {
		t.Fatal(err)
	}
	inChild.Close()

	_, err = Start(t.Context(), link(t, "works-and-hangs"), sdk.KindQuantizer,
		Options{StartTimeout: brief})
	check(t, err, ErrTimeout, "was not ready within 1s")
	_, err = Start(t.Context(), link(t, "works-and-dies"), sdk.KindQuantizer,
		Options{StartTimeout: brief})
	check(t, err, ErrStart, "exited with status 3 before it was ready")
	_, err = Start(t.Context(), link(t, "works-forever"), sdk.KindQuantizer,
		Options{StartTimeout: 200 * time.Millisecond})
	check(t, err, ErrTimeout, "was not ready within 6s of processor time")
}

// TestHashOfScripts checks that the hash of a script covers what it may import, and nothing else,
// that a script alone has the hash of its file, and that a pin refuses a changed module.
func TestHashOfScripts(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		err := os.MkdirAll(filepath.Dir(path), 0o700)
		if err == nil {
			err = os.WriteFile(path, []byte(text), 0o700)
		}
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	sum := func(path string) string {
		t.Helper()
		sum, err := hashOf(path)
		if err != nil {
			t.Fatal(err)
		}
		return sum
	}
	path := write("own/plugin.py", "#!/bin/sh\nexit 3\n")
	alone, err := checksum(path, "")
	if file, _, fileErr := hashOfFile(path); err != nil || fileErr != nil || alone != file {
		t.Errorf("alone %s, want %s (errors %v, %v)", alone, file, err, fileErr)
	}
	write("own/test_plugin.py", "1")
	write("own/.git/hook.py", "1")
	write("own/venv/pyvenv.cfg", "")
	write("own/venv/lib/numpy.py", "1")
	write("own/README.md", "1")
	if got := sum(path); got != alone {
		t.Error("the hash of a script covers what it does not import")
	}
	shared := write("shared/scales.py", "1")
	if err := os.Symlink(filepath.Dir(shared), filepath.Join(dir, "own/shared")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(dir, filepath.Join(dir, "own/shared/again")); err != nil { // a cycle
		t.Fatal(err)
	}
	if err := os.Symlink(path, filepath.Join(dir, "linked")); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{alone: true}
	write("own/json/pyvenv.cfg", "") // a package is no virtual environment
	write("own/pyvenv.cfg", "")      // nor is the script's own directory left out
	for _, name := range []string{"own/formula.py", "own/parts/deep.py", "own/fast.so", "own/env.sh",
		"shared/scales.py", "own/json/__init__.py", "own/random.pyc"} {
		for range 2 { // new, and changed
			write(name, fmt.Sprint(name, len(seen)))
			got := sum(path)
			if seen[got] {
				t.Errorf("%s does not change the hash", name)
			}
			if linked := sum(filepath.Join(dir, "linked")); linked != got {
				t.Errorf("through a link the hash is %s, want %s", linked, got)
			}
			seen[got] = true
		}
	}
	_, err = Start(t.Context(), direct(path), sdk.KindQuantizer, Options{SHA256: alone})
	check(t, err, ErrChecksum, "its SHA-256 is "+sum(path), alone+" is pinned")

	program := write("own/program", "\x7fELF")
	if file, _, err := hashOfFile(program); err != nil || sum(program) != file {
		t.Errorf("the hash of a program covers other files (error %v)", err)
	}
	for i := range 20 {
		if err := os.MkdirAll(filepath.Join(dir, "own", strings.Repeat("d", i+1)), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := modules(filepath.Join(dir, "own"), "plugin.py", 10); err == nil ||
		!strings.Contains(err.Error(), "put the script into a directory of its own") {
		t.Errorf("too many files: %v", err)
	}
}
