package gotool

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"go/version"
	"os/exec"
	"strings"
)

// oldest is the first go command that fetches the toolchain which a module asks for.
const oldest = "go1.21"

// Tool is a go command that was found to work, with its settings.
type Tool struct {
	settings []string
	notify   func(string)
}

// Find looks for the go command and chooses its settings for work in dir. notify, unless
// nil, is called with messages for a person who waits: what is being downloaded.
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
			return nil, fmt.Errorf("the go command in PATH is %s: install Go %s or newer, which fetches the toolchain it needs", out, oldest[len("go"):])
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

// Settings returns the environment variables, as NAME=VALUE, that differ from those of
// this process.
func (t *Tool) Settings() []string { return t.settings }

// Output runs the go command in dir and returns what it prints, without surrounding white
// space. The error includes what the command prints to standard error.
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
		return nil, fmt.Errorf("there is no go command to build Go source (%w): install Go", exec.ErrNotFound)
	}
	said := strings.TrimSpace(stderr.text.String())
	if said == "" { // as with -json
		said = strings.TrimSpace(string(out))
	}
	return nil, fmt.Errorf("go %s: %w\n%s", args[0], err, said)
}

// listener keeps what the go command says, and passes on what it downloads.
type listener struct {
	text   bytes.Buffer
	passed int // bytes of text in lines that were looked at
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
