// Package gotool runs the go command for cage, which builds plugins from source and creates new
// ones. Whatever the environment says, these commands use the toolchain, experiments and cgo
// setting of this executable's build. Thus packages that the Makefile has compiled are found in the
// build cache.
package gotool

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"go/version"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"
)

// oldest is the first Go version that downloads the toolchain required by a module.
const oldest = "go1.21"

// Tool is a usable go command with its settings.
type Tool struct {
	settings []string
	notify   func(string)
}

// Find finds the go command and chooses its settings for dir. If notify is not nil, it is called
// with progress messages for the user, such as what is being downloaded.
func Find(ctx context.Context, dir string, notify func(string)) (*Tool, error) {
	return find(ctx, dir, notify, ofThisExecutable())
}

func find(ctx context.Context, dir string, notify func(string), b buildSettings) (*Tool, error) {
	var first error
	for _, settings := range b.candidates() {
		t := &Tool{settings: settings, notify: notify}
		out, err := t.Output(ctx, dir, "env", "GOVERSION")
		switch {
		case err == nil && version.Compare(string(out), oldest) < 0:
			return nil, fmt.Errorf("the go command in PATH is %s: install Go %s or newer, which "+
				"downloads the toolchain that it needs", out, oldest[len("go"):])
		case err == nil:
			return t, nil
		case errors.Is(err, exec.ErrNotFound) || ctx.Err() != nil:
			return nil, err
		case first == nil:
			first = err
		}
	}
	return nil, first
}

// Settings returns the environment variables, as NAME=VALUE, in which the go command's environment
// differs from that of this process.
func (t *Tool) Settings() []string { return t.settings }

// Output runs the go command in dir and returns its trimmed standard output. The error includes the
// command's standard error.
func (t *Tool) Output(ctx context.Context, dir string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(cmd.Environ(), t.settings...)
	stderr := &listener{notify: t.notify}
	cmd.Stderr = stderr
	out, err := cmd.Output()
	switch {
	case err == nil:
		return bytes.TrimSpace(out), nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.Is(err, exec.ErrNotFound):
		return nil, fmt.Errorf("no go command found to build Go source (%w): install Go",
			exec.ErrNotFound)
	}
	said := strings.TrimSpace(stderr.text.String())
	if said == "" { // with -json, errors are in the standard output
		said = strings.TrimSpace(string(out))
	}
	return nil, fmt.Errorf("go %s: %w\n%s", args[0], err, said)
}

// listener collects the go command's standard error, and passes on messages about downloads.
type listener struct {
	text   bytes.Buffer
	passed int // bytes of text in lines already examined
	notify func(string)
}

func (l *listener) Write(p []byte) (int, error) {
	l.text.Write(p)
	for l.notify != nil {
		line, _, whole := strings.Cut(string(l.text.Bytes()[l.passed:]), "\n")
		if !whole {
			break
		}
		l.passed += len(line) + 1
		if strings.HasPrefix(line, "go: downloading ") {
			l.notify(line)
		}
	}
	return len(p), nil
}

// release matches the part of a toolchain version that GOTOOLCHAIN accepts: without the suffix for
// the experiments, as in go1.27.2-X:simd.
var release = regexp.MustCompile(`^go1\.[0-9]+(\.[0-9]+|rc[0-9]+)?`)

// buildSettings are the settings with which an executable was built. An unknown setting is empty.
type buildSettings struct{ toolchain, experiment string }

// ofThisExecutable returns the build settings of the running executable.
func ofThisExecutable() buildSettings {
	b := buildSettings{toolchain: release.FindString(runtime.Version())}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "GOEXPERIMENT" {
				b.experiment = s.Value
			}
		}
	}
	return b
}

// candidates returns environments to try, the best first. The executable's own toolchain is
// downloaded if missing. Without a network, the installed toolchain may work, even if it does not
// know the experiments.
func (b buildSettings) candidates() [][]string {
	var common []string
	if os.Getenv("CGO_ENABLED") == "" {
		common = []string{"CGO_ENABLED=0"} // as in the Makefile: no C compiler is needed
	}
	var list [][]string
	add := func(settings ...string) { list = append(list, append(settings, common...)) }
	if b.toolchain != "" && b.experiment != "" {
		add("GOTOOLCHAIN="+b.toolchain+"+auto", "GOEXPERIMENT="+b.experiment)
	}
	if b.toolchain != "" && b.experiment == "" {
		add("GOTOOLCHAIN=" + b.toolchain + "+auto")
	}
	if b.experiment != "" {
		add("GOEXPERIMENT=" + b.experiment)
	}
	add()
	return list
}
