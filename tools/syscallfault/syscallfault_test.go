//go:build linux

package syscallfault_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/tools/syscallfault"
)

// workEnv is the environment variable that names the command that this test binary acts as.
const workEnv = "TRAP_TEST_WORK"

func TestMain(m *testing.M) {
	syscallfault.Launch()
	if work := os.Getenv(workEnv); work != "" {
		if err := works[work](); err != nil {
			panic(err)
		}
		return
	}
	os.Exit(m.Run())
}

// works lists the commands. Each runs in its own directory.
var works = map[string]func() error{
	"save":   save,
	"family": func() error { return family(true) },
	"orphan": func() error { return family(false) },
	"sleep": func() error {
		if err := os.WriteFile("asleep", nil, 0o600); err != nil {
			return err
		}
		time.Sleep(time.Hour)
		return nil
	},
}

// save changes the directory by calls of each kind.
func save() error {
	f, err := os.Create("new")
	if err != nil {
		return err
	}
	for _, text := range []string{"first ", "second", "third "} {
		if _, err := f.WriteString(text); err != nil {
			return err
		}
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := os.Rename("new", "kept"); err != nil {
		return err
	}
	return os.Remove("kept")
}

// family starts a process that sleeps, and waits for it if wait is set.
func family(wait bool) error {
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), workEnv+"=sleep")
	if err := child.Start(); err != nil {
		return err
	}
	for _, err := os.Stat("asleep"); err != nil; _, err = os.Stat("asleep") {
		time.Sleep(time.Millisecond)
	}
	if !wait {
		return nil
	}
	if err := os.WriteFile("parent", nil, 0o600); err != nil {
		return err
	}
	return child.Wait()
}

// run runs a command in a directory, and calls decide for the calls on paths in that directory.
func run(
	t *testing.T, dir, work string, decide func(syscallfault.Call) syscallfault.Decision,
) syscallfault.Report {
	t.Helper()
	if err := syscallfault.Supported(t.Context()); err != nil {
		t.Skip(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	output := filepath.Join(t.TempDir(), "output")
	r, err := syscallfault.Run(ctx, syscallfault.Command{
		Args: []string{os.Args[0]}, Dir: dir, Env: append(os.Environ(), workEnv+"="+work), Output: output,
		Grace: 100 * time.Millisecond,
	}, func(c syscallfault.Call) syscallfault.Decision {
		if strings.HasPrefix(c.Path, dir) {
			return decide(c)
		}
		return syscallfault.Decision{}
	})
	if err != nil {
		said, _ := os.ReadFile(output)
		t.Fatalf("%v\n%s", err, said)
	}
	return r
}

func TestCallsOfAProcess(t *testing.T) {
	dir := t.TempDir()
	var got []string
	r := run(t, dir, "save", func(c syscallfault.Call) syscallfault.Decision {
		what := c.Name + " " + filepath.Base(c.Path)
		if c.To != "" {
			what += " " + filepath.Base(c.To)
		}
		if !c.Root {
			t.Errorf("%s: by process %d, which is not the command", what, c.PID)
		}
		got = append(got, what)
		return syscallfault.Decision{}
	})
	want := []string{"openat new", "write new", "write new", "write new", "fsync new",
		"renameat new kept", "unlinkat kept"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	if r.Code != 0 || r.Killed || len(r.Orphans) > 0 {
		t.Errorf("the command ended so: %+v", r)
	}
}

// TestKilledBeforeEachCall checks that after a kill, only the effects of earlier calls are there.
func TestKilledBeforeEachCall(t *testing.T) {
	wants := []struct{ name, content, torn string }{
		{"", "", ""}, {"new", "", "fir"}, {"new", "first ", "first sec"},
		{"new", "first second", "first secondthi"},
		{"new", "first secondthird ", ""}, {"new", "first secondthird ", ""},
		{"kept", "first secondthird ", ""}, {"", "", ""},
	}
	for i, want := range wants {
		for _, torn := range []bool{false, true} {
			dir := t.TempDir()
			calls := 0
			r := run(t, dir, "save", func(syscallfault.Call) syscallfault.Decision {
				if calls++; calls == i+1 {
					return syscallfault.Decision{Verdict: syscallfault.KillCaller, Torn: torn}
				}
				return syscallfault.Decision{}
			})
			if last := i == len(wants)-1; r.Killed == last {
				t.Errorf("call %d: the command ended with %s", i+1, r.State)
			}
			content := want.content
			if torn && want.torn != "" {
				content = want.torn
			}
			if name, got := only(t, dir); name != want.name || got != content {
				t.Errorf("call %d, torn %v: file %q holds %q, want %q with %q", i+1, torn, name, got, want.name,
					content)
			}
		}
	}
}

// only returns the name and content of the only file in a directory; "" if there is none.
func only(t *testing.T, dir string) (name, content string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) == 0 {
		return "", ""
	}
	text, err := os.ReadFile(filepath.Join(dir, entries[0].Name()))
	if err != nil || len(entries) > 1 {
		t.Fatalf("%d files, %v", len(entries), err)
	}
	return entries[0].Name(), string(text)
}

func TestKillAll(t *testing.T) {
	r := run(t, t.TempDir(), "family", func(c syscallfault.Call) syscallfault.Decision {
		if filepath.Base(c.Path) == "parent" {
			return syscallfault.Decision{Verdict: syscallfault.KillAll}
		}
		return syscallfault.Decision{}
	})
	if !r.Killed || len(r.Orphans) > 0 {
		t.Errorf("the command ended so: %+v", r)
	}
}

// TestKillCaller checks that only the calling process, here a child, dies. Its parent continues.
func TestKillCaller(t *testing.T) {
	dir := t.TempDir()
	r := run(t, dir, "family", func(c syscallfault.Call) syscallfault.Decision {
		if c.Name == "openat" && filepath.Base(c.Path) == "asleep" {
			if c.Root {
				t.Error("the child counts as the command")
			}
			// The parent waits for this file.
			if err := os.WriteFile(filepath.Join(dir, "asleep"), nil, 0o600); err != nil {
				t.Error(err)
			}
			return syscallfault.Decision{Verdict: syscallfault.KillCaller}
		}
		return syscallfault.Decision{}
	})
	if r.Killed || r.Code != 2 { // because of the panic over "signal: killed"
		t.Errorf("the command ended so: %+v", r)
	}
}

func TestOrphan(t *testing.T) {
	r := run(t, t.TempDir(), "orphan",
		func(syscallfault.Call) syscallfault.Decision { return syscallfault.Decision{} })
	if r.Code != 0 || len(r.Orphans) != 1 {
		t.Fatalf("the command ended so: %+v", r)
	}
}
