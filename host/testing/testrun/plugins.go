package testrun

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cage-qat/cage/host/train/plugin"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
)

// pluginsVariable is the environment variable with a directory of built plugins, for tests that run
// without a Go toolchain.
const pluginsVariable = "CAGE_TEST_PLUGINS"

// built returns the paths of this repository's plugins by name. They are built once per process,
// into the user's cache.
var built = sync.OnceValues(func() (map[string]string, error) {
	finder, err := plugin.NewFinder()
	if err != nil {
		return nil, err
	}
	dir := os.Getenv(pluginsVariable)
	if dir == "" {
		root, err := root()
		if err != nil {
			return nil, err
		}
		dir = filepath.Join(root, "plugins")
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	finder.Dirs = []string{dir}
	paths := map[string]string{}
	for _, entry := range entries {
		exe, err := finder.Find(context.Background(), entry.Name())
		if err != nil {
			return nil, err
		}
		paths[entry.Name()] = exe.Path
	}
	return paths, nil
})

// Executables returns the paths of the plugins of this repository by name.
func Executables(t testing.TB) map[string]string {
	t.Helper()
	paths, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

// Example builds the plugin of examples/plugins with the given name. It looks at the plugin's
// files, so that the go command repeats the test if one has changed.
func Example(t testing.TB, name string) plugin.Executable {
	t.Helper()
	root, err := root()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(root, "examples", "plugins", name)
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if _, err := os.Stat(file); err != nil {
			t.Fatal(err)
		}
	}
	finder, err := plugin.NewFinder()
	if err != nil {
		t.Fatal(err)
	}
	exe, err := finder.Find(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	return exe
}

// shared holds the plugin processes that the tests of a package with [Main] share, because starting
// one takes longer than a small training run. If nil, each training run starts its own.
var shared map[sharedKey]*plugin.Client

var sharing sync.Mutex

type sharedKey struct {
	path string
	kind sdk.Kind
}

// share returns a shared process for a plugin of this repository, which it starts on first use. It
// starts a new process for any other plugin.
func share(ctx context.Context, exe plugin.Executable, kind sdk.Kind,
	opts plugin.Options) (*plugin.Client, error) {
	path := exe.Path
	if target, err := os.Readlink(path); err == nil {
		path = target
	}
	paths, err := built()
	if err != nil || path != paths[exe.Name] {
		return plugin.Start(ctx, exe, kind, opts)
	}
	sharing.Lock()
	defer sharing.Unlock()
	key := sharedKey{path, kind}
	c := shared[key]
	if c == nil {
		if c, err = plugin.Start(context.Background(), exe, kind, plugin.Options{}); err != nil {
			return nil, err
		}
		shared[key] = c
	}
	if opts.SHA256 != "" && opts.SHA256 != c.SHA256() {
		return plugin.Start(ctx, exe, kind, opts) // returns the error
	}
	return c.Share(), nil
}

// Main runs the tests of a package with shared plugins. It then stops these plugins, and fails if
// goroutines are still running.
func Main(m *testing.M) {
	shared = map[sharedKey]*plugin.Client{}
	goleak.VerifyTestMain(withPlugins{m})
}

type withPlugins struct{ *testing.M }

func (w withPlugins) Run() int {
	code := w.M.Run()
	for _, c := range shared {
		c.Close()
	}
	return code
}

// Finder returns a finder for the built plugins of this repository. If the package uses [Main],
// they are shared.
func Finder(t testing.TB) *plugin.Finder {
	t.Helper()
	dir := os.Getenv(pluginsVariable)
	if dir == "" {
		dir = t.TempDir()
		for name, path := range Executables(t) {
			if err := os.Symlink(path, filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	f := &plugin.Finder{Dirs: []string{dir}}
	if shared != nil {
		f.Launch = share
	}
	return f
}

// Recorder is a finder for plugins that record their process IDs when they start.
type Recorder struct {
	*plugin.Finder
	notes string // a directory with one file for each process
}

// NewRecorder returns a Recorder for the plugins of this repository. Each is started by a script
// that records the process ID and then executes the plugin.
func NewRecorder(t testing.TB) Recorder {
	t.Helper()
	r := Recorder{&plugin.Finder{Dirs: []string{t.TempDir()}}, t.TempDir()}
	for name, path := range Executables(t) {
		r.Script(t, name, fmt.Sprintf("exec '%s'", path))
	}
	return r
}

// Script replaces a plugin by a shell script that records its process ID and then runs the given
// lines.
func (r Recorder) Script(t testing.TB, name, lines string) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("needs a shell")
	}
	text := fmt.Sprintf("#!/bin/sh\n: > '%s'/$$\n%s\n", r.notes, lines)
	path := filepath.Join(r.Dirs[0], name)
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}

// Processes returns the IDs of all plugin processes that have started.
func (r Recorder) Processes(t testing.TB) []int {
	t.Helper()
	entries, err := os.ReadDir(r.notes)
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	return pids
}

// Alive returns the processes that are still running.
func Alive(pids []int) []int {
	var list []int
	for _, pid := range pids {
		if alive(pid) {
			list = append(list, pid)
		}
	}
	return list
}

// alive reports whether a process is running. A zombie is not.
func alive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return runtime.GOOS != "linux"
	}
	rest := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	return string(rest[0]) != "Z" && string(rest[0]) != "X"
}

// AwaitDeath fails the test if any of the processes is still running after the given time.
func AwaitDeath(t testing.TB, pids []int, within time.Duration) {
	t.Helper()
	for end := time.Now().Add(within); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if len(Alive(pids)) == 0 {
			return
		}
	}
	for _, pid := range Alive(pids) {
		_ = syscall.Kill(pid, syscall.SIGKILL)
		t.Errorf("plugin process %d is still running after %v", pid, within)
	}
}

// commandVariable is the environment variable with the path of the built cage command.
const commandVariable = "CAGE_TEST_COMMAND"

// Cage returns the path of the cage command, as [CageIn] does.
func Cage(t testing.TB, tags ...string) string {
	t.Helper()
	path, err := CageIn(t.TempDir(), tags...)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// CageIn returns the path of the cage command with the given build tags. It builds the command in a
// directory, unless one without tags is given by the environment. The go command repeats tests if
// that file has changed, but does not know what a test builds.
func CageIn(dir string, tags ...string) (string, error) {
	if path := os.Getenv(commandVariable); path != "" && len(tags) == 0 {
		_, err := os.Stat(path)
		return path, err
	}
	path := filepath.Join(dir, "cage")
	cmd := exec.Command("go", "build", "-tags", strings.Join(tags, ","), "-o", path, "./cmd/cage")
	var err error
	if cmd.Dir, err = root(); err != nil {
		return "", err
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build ./cmd/cage: %w\n%s", err, bytes.TrimSpace(out))
	}
	return path, nil
}

// Carrier is an optimizer with two states: m, written by updates and refreshes, and a, written only
// by refreshes. Its update direction is a.
type Carrier struct{}

// Describe implements sdk.Optimizer.
func (Carrier) Describe() sdk.Description { return sdk.Description{Name: "carrier"} }

// Init implements sdk.Optimizer.
func (Carrier) Init(b *program.Builder, _ program.Value, _ sdk.Tensor) (sdk.State, error) {
	return sdk.State{"a": b.Const(1), "m": b.Const(0), "n": b.Const(0)}, nil
}

// Observe implements sdk.Observer.
func (Carrier) Observe(_ *program.Builder, in sdk.UpdateInput, _ sdk.Tensor) (sdk.State, error) {
	return sdk.State{"n": in.State["n"].Shift(1)}, nil
}

// Refresh computes a' = a + n and m' = 2m − a + a·n + t, if n > 0.
func (Carrier) Refresh(b *program.Builder, in sdk.RefreshInput, _ bool,
	_ sdk.Tensor) (sdk.State, error) {
	a, m, n := in.State["a"], in.State["m"], in.State["n"]
	ok := n.Gt(b.Const(0))
	return sdk.State{"a": a.Add(n), "m": ok.Select(m.Scale(2).Sub(a).Add(a.Mul(n)).Add(in.Step), m)},
		nil
}

// RefreshAt implements sdk.Refresher.
func (Carrier) RefreshAt(sdk.Tensor) sdk.Due { return sdk.Due{First: 2, Next: 4, Every: 3} }

// Update implements sdk.Optimizer.
func (Carrier) Update(b *program.Builder, in sdk.UpdateInput,
	t sdk.Tensor) (program.Value, sdk.State, error) {
	next := maps.Clone(in.State)
	next["m"] = in.State["m"].Shift(1)
	return b.Zeros(t.Shape...).Add(in.State["a"]), next, nil
}
