package gotool

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// TestSettingsOfThisExecutable checks that the toolchain and the experiments are those of the
// executable, even if environment variables set others.
func TestSettingsOfThisExecutable(t *testing.T) {
	t.Setenv("GOTOOLCHAIN", "local")
	t.Setenv("GOEXPERIMENT", "")
	tool, err := Find(t.Context(), t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	got, err := tool.Output(t.Context(), t.TempDir(), "version")
	if err != nil {
		t.Fatal(err)
	}
	want, _, _ := strings.Cut(runtime.Version(), " ")
	if want, _, _ = strings.Cut(want, "-X:"); !strings.Contains(string(got), want) {
		t.Errorf("go version prints %s, want that of this test, %s", got, want)
	}
	if got, err := tool.Output(t.Context(), t.TempDir(), "env", "GOEXPERIMENT"); err != nil ||
		string(got) != ofThisExecutable().experiment {
		t.Errorf("GOEXPERIMENT is %q (%v), want that of this test, %q", got, err,
			ofThisExecutable().experiment)
	}
}

// TestCgo checks that cgo is disabled unless the environment enables it.
func TestCgo(t *testing.T) {
	for set, want := range map[string]string{"": "0", "0": "0", "1": "1"} {
		t.Setenv("CGO_ENABLED", set)
		tool, err := Find(t.Context(), t.TempDir(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := tool.Output(t.Context(), t.TempDir(), "env", "CGO_ENABLED"); err != nil ||
			string(got) != want {
			t.Errorf("with %q: CGO_ENABLED is %s (%v), want %s", set, got, err, want)
		}
	}
}

// goCommand replaces the go command by a shell script.
func goCommand(t *testing.T, script string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "go"), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir)
}

// TestFallback checks that, if the executable's toolchain is not available, the installed one is
// used, without the experiments if it does not know them. If nothing works, the error must be that
// of the first attempt.
func TestFallback(t *testing.T) {
	t.Setenv("GOTOOLCHAIN", "local")
	t.Setenv("GOEXPERIMENT", "")
	t.Setenv("CGO_ENABLED", "0")
	const noFetch = `case "$GOTOOLCHAIN" in go*) echo "cannot fetch $GOTOOLCHAIN" >&2; exit 1;; esac` +
		"\n"
	const noSIMD = `case "$GOEXPERIMENT" in simd) echo "unknown simd" >&2; exit 2;; esac` + "\n"
	for _, c := range []struct {
		name, script string
		want         []string
		fails        string
	}{
		{"all", "echo go1.99.3", []string{"GOTOOLCHAIN=go1.99.3+auto", "GOEXPERIMENT=simd"}, ""},
		{"no network", noFetch + "echo go1.99.4", []string{"GOEXPERIMENT=simd"}, ""},
		{"no network, no experiment", noFetch + noSIMD + "echo go1.99.5", nil, ""},
		{"nothing", noFetch + noSIMD + "exit 3", nil, "cannot fetch go1.99.3+auto"},
		{"too old", "echo go1.19.8", nil, "the go command in PATH is go1.19.8: install Go 1.21 or newer"},
	} {
		goCommand(t, c.script)
		tool, err := find(t.Context(), t.TempDir(), nil,
			buildSettings{toolchain: "go1.99.3", experiment: "simd"})
		switch {
		case c.fails != "":
			if err == nil || !strings.Contains(err.Error(), c.fails) {
				t.Errorf("%s: error %v, want %q", c.name, err, c.fails)
			}
		case err != nil:
			t.Errorf("%s: %v", c.name, err)
		case !slices.Equal(tool.Settings(), c.want):
			t.Errorf("%s: settings %q, want %q", c.name, tool.Settings(), c.want)
		}
	}
}

// TestNotify checks that only messages about downloads are passed on, in whole lines.
func TestNotify(t *testing.T) {
	goCommand(t, `[ "$1" = env ] && echo go1.99.3 && exit
printf 'go: down' >&2
printf 'loading a v1\nwarning\ngo: downloading b v2\ngo: unfinished' >&2
exit 1`)
	var told []string
	tool, err := Find(t.Context(), t.TempDir(), func(s string) { told = append(told, s) })
	if err != nil {
		t.Fatal(err)
	}
	_, err = tool.Output(t.Context(), t.TempDir(), "build")
	if want := []string{"go: downloading a v1", "go: downloading b v2"}; !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
	if err == nil || !strings.Contains(err.Error(), "warning\n") ||
		!strings.HasSuffix(err.Error(), "go: unfinished") {
		t.Errorf("the error does not hold what was said: %v", err)
	}
}
