package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/cage-qat/cage/internal/testing/racing"
)

var update = flag.Bool("update", false, "write what was found into testdata/script and docs")

func TestMain(m *testing.M) {
	testscript.Main(withPlugins{m},
		map[string]func(){"cage": main, "rogue": rogue, "broken": broken, "faulty": faulty})
}

// withPlugins runs the tests and removes the plugins that were built for them.
type withPlugins struct{ *testing.M }

func (w withPlugins) Run() int {
	defer func() { _ = os.RemoveAll(temporaryPlugins) }()
	return w.M.Run()
}

// TestScripts runs the scripts of testdata/script, each in its own directory, with all plugins
// available.
func TestScripts(t *testing.T) {
	environment := scriptEnvironment(t)
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			env.Values[backgroundKey] = &background{}
			env.Vars = append(env.Vars, environment...)
			env.Setenv("XDG_CACHE_HOME", filepath.Join(env.WorkDir, "cache"))
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exits, "json": isJSON, "interrupt": interrupt, "await": awaitText, "exited": exited,
			"replace": replace, "same": same, "fetch": fetch, "kept": kept,
		},
		UpdateScripts:       *update,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
	})
}

// pluginsVariable is the environment variable that names a directory with the built plugins.
const pluginsVariable = "CAGE_TEST_PLUGINS"

// temporaryPlugins is the directory of plugins that were built for the tests; "" if none were.
var temporaryPlugins string

// builtPlugins returns the directory of the repository's plugins. They are built, once, if it is
// not given.
var builtPlugins = sync.OnceValues(func() (dir string, err error) {
	if dir = os.Getenv(pluginsVariable); dir != "" {
		// Look at them, so that the go command repeats the tests if one has changed.
		entries, err := os.ReadDir(dir)
		for _, entry := range entries {
			if err == nil {
				_, err = os.Stat(filepath.Join(dir, entry.Name()))
			}
		}
		return dir, err
	}
	if dir, err = os.MkdirTemp("", "cage-plugins-"); err != nil {
		return "", err
	}
	temporaryPlugins = dir
	out, err := exec.Command("go", "build", "-o", dir+string(filepath.Separator), "../../plugins/...").
		CombinedOutput()
	if err != nil {
		return dir, fmt.Errorf("go build plugins: %w\n%s", err, out)
	}
	return dir, nil
})

func pluginsDir(t *testing.T) string {
	t.Helper()
	dir, err := builtPlugins()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// scriptEnvironment returns the environment of a user of cage: the plugins, and the go command with
// a module cache. The scripts share the processors: each command gets one, and collects its garbage
// rarely.
func scriptEnvironment(t *testing.T) []string {
	t.Helper()
	repo, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	goCommand, err := exec.LookPath("go")
	if err != nil {
		t.Fatal(err)
	}
	list := []string{
		"CAGE_PLUGIN_PATH=" + pluginsDir(t), "REPO=" + repo, "GO=" + goCommand,
		"GOMODCACHE=" + bareModules(t), "GOPROXY=off", "GOWORK=off", // a module's own go.mod must suffice
		"GOFLAGS=" + os.Getenv("GOFLAGS") + " -trimpath", // the location of modules must not matter
	}
	if !racing.Enabled { // the race detector finds more if goroutines run in parallel
		list = append(list, "GOMAXPROCS=1", "GOGC=400")
	}
	names := []string{"GOPATH", "GOTOOLCHAIN", "GOSUMDB", "GOEXPERIMENT", "GOCACHE"}
	values := strings.Split(goOut(t, append([]string{"env"}, names...)...), "\n")
	for i, name := range names {
		list = append(list, name+"="+values[i])
	}
	return list
}

// exits runs a command and compares its exit code: exits CODE COMMAND ARG…
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND ARG...")
	}
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			ts.Fatalf("%v", err)
		}
		got = exit.ExitCode()
	}
	if strconv.Itoa(got) != args[0] {
		ts.Fatalf("exit code %d, want %s", got, args[0])
	}
}

// same compares a member of two JSON files: same KEY FILE FILE.
func same(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 3 {
		ts.Fatalf("usage: same KEY FILE FILE")
	}
	var values [2]any
	for i, file := range args[1:] {
		var members map[string]any
		ts.Check(json.Unmarshal([]byte(ts.ReadFile(file)), &members))
		if values[i] = members[args[0]]; values[i] == nil {
			ts.Fatalf("%s has no %s", file, args[0])
		}
	}
	if (values[0] == values[1]) == neg {
		ts.Fatalf("%s is %v in %s, and %v in %s", args[0], values[0], args[1], values[1], args[2])
	}
}

// isJSON checks values in a file or stdout that is one JSON document: json FILE PATH=VALUE…, where
// PATH has dots and VALUE is JSON, or * for any value.
func isJSON(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 {
		ts.Fatalf("usage: json FILE [PATH=VALUE...]")
	}
	decoder := json.NewDecoder(strings.NewReader(ts.ReadFile(args[0])))
	var doc any
	ts.Check(decoder.Decode(&doc))
	if decoder.More() {
		ts.Fatalf("%s holds more than one document", args[0])
	}
	for _, arg := range args[1:] {
		path, want, _ := strings.Cut(arg, "=")
		v, ok := dig(doc, strings.Split(path, "."))
		if !ok {
			ts.Fatalf("%s has no %s", args[0], path)
		}
		got, err := json.Marshal(v)
		ts.Check(err)
		if want != "*" && !bytes.Equal(got, []byte(want)) {
			ts.Fatalf("%s: %s is %s, want %s", args[0], path, got, want)
		}
	}
}

// dig returns the value at a path of keys and indices.
func dig(v any, path []string) (any, bool) {
	for _, key := range path {
		switch at := v.(type) {
		case map[string]any:
			next, ok := at[key]
			if !ok {
				return nil, false
			}
			v = next
		case []any:
			i, err := strconv.Atoi(key)
			if err != nil || i < 0 || i >= len(at) {
				return nil, false
			}
			v = at[i]
		default:
			return nil, false
		}
	}
	return v, true
}

// background holds the commands that a script has interrupted.
type background struct{ commands []*exec.Cmd }

const backgroundKey = "background"

// interrupt waits until a file contains a text, and sends SIGINT to the commands in
// the background: interrupt FILE TEXT.
func interrupt(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: interrupt FILE TEXT")
	}
	await(ts, ts.MkAbs(args[0]), args[1])
	b := ts.Value(backgroundKey).(*background)
	b.commands = ts.BackgroundCmds()
	for _, c := range b.commands {
		ts.Check(c.Process.Signal(os.Interrupt))
	}
}

// awaitText waits until a file contains a text: await FILE TEXT.
func awaitText(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: await FILE TEXT")
	}
	await(ts, ts.MkAbs(args[0]), args[1])
}

// exited compares the exit codes of the interrupted commands, and is used after wait: exited CODE.
func exited(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: exited CODE")
	}
	for _, c := range ts.Value(backgroundKey).(*background).commands {
		if got := strconv.Itoa(c.ProcessState.ExitCode()); got != args[0] {
			ts.Fatalf("exit code %s, want %s", got, args[0])
		}
	}
}

// await waits until a file contains a text.
func await(ts *testscript.TestScript, pattern, text string) {
	for range 600 {
		found, err := filepath.Glob(pattern)
		ts.Check(err)
		for _, path := range found {
			content, err := os.ReadFile(path)
			if err == nil && bytes.Contains(content, []byte(text)) {
				return
			}
		}
		time.Sleep(50 * time.Millisecond)
	}
	ts.Fatalf("%s did not contain %q within 30 seconds", pattern, text)
}

// fetch sends a request to the server whose address is the first line of a file, as soon as that is
// written, and stores the response: fetch FILE PATH TO.
func fetch(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: fetch FILE PATH TO")
	}
	await(ts, ts.MkAbs(args[0]), "\n")
	address, _, _ := strings.Cut(ts.ReadFile(args[0]), "\n")
	answer, err := http.Get(strings.TrimSuffix(address, "/") + args[1])
	ts.Check(err)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	ts.Check(err)
	if answer.StatusCode != http.StatusOK {
		ts.Fatalf("%s: %s: %s", args[1], answer.Status, body)
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[2]), body, 0o644))
}

// replace replaces a text in a file: replace FILE OLD NEW.
func replace(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: replace FILE OLD NEW")
	}
	content := ts.ReadFile(args[0])
	if !strings.Contains(content, args[1]) {
		ts.Fatalf("%s does not contain %q", args[0], args[1])
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(strings.ReplaceAll(content, args[1], args[2])),
		0o644))
}
