package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cage-qat/cage/host/train/checkpoint"
	"github.com/cage-qat/cage/host/train/rundir"
)

// TestNamedPipes checks that a named pipe in place of any file is refused, not waited for.
func TestNamedPipes(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	for _, ending := range []string{"", ".toml", ".csv", ".tokens"} {
		if err := syscall.Mkfifo(pipe+ending, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	text := filepath.Join(dir, "a.txt")
	if err := os.WriteFile(text, bytes.Repeat([]byte("some text\n"), 1000), 0o644); err != nil {
		t.Fatal(err)
	}
	toy, run := toyRun(t, 3)
	if out, err := command(t, "train", "--quiet", toy).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	language := []string{"train", toy, "--set", `model={layers=1, width=8, heads=2, context=8}`,
		"--set", "train.batch=1", "--set", `data.train="` + pipe + `.tokens"`, "--set",
		`data.validation="` + pipe + `.tokens"`}
	kept := func(p func(rundir.Dir) string) string { return runWithPipe(t, run, p, pipe) }
	cases := map[string][]string{
		"run.toml":   {"train", pipe + ".toml"},
		"study file": {"study", "run", pipe + ".toml"},
		"data":       language,
		"token file": {"data", "show", pipe + ".tokens"},
		"text":       {"data", "prepare", pipe, "--out", filepath.Join(dir, "out")},
		"tokenizer": {"data", "prepare", text, "--tokenizer", pipe, "--out",
			filepath.Join(dir, "out")},
		"table of points":      {"fit", pipe + ".csv"},
		"golden file":          {"plugins", "test", "sgd", "--device", "none", "--golden", pipe},
		"plugin":               {"plugins", "show", pipe},
		"configuration of run": {"eval", kept(func(d rundir.Dir) string { return d.Config().Name })},
		"checkpoint, to resume": {"train", "--resume", toy, "--set", "train.steps=3", "--set",
			`train.out="` + kept(newestCheckpoint(t)) + `"`},
		"checkpoint, to use": {"eval", kept(newestCheckpoint(t))},
		"provenance": {"runs", "show",
			kept(func(d rundir.Dir) string { return d.Provenance().Name })},
		"metrics": {"plot", kept(func(d rundir.Dir) string { return d.Metrics().Name })},
	}
	for name, args := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var output bytes.Buffer
			cmd := command(t, args...)
			cmd.Stdout, cmd.Stderr = &output, &output
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			got := code(t, cmd)
			if got != exitError || !refusesPipe(output.String()) {
				t.Errorf("exit code %d, want %d; output:\n%s", got, exitError, output.String())
			}
		})
	}
}

func refusesPipe(text string) bool {
	for _, words := range []string{"is a named pipe", "is neither a file nor a folder",
		"cannot be executed"} {
		if strings.Contains(text, words) {
			return true
		}
	}
	return false
}

// runWithPipe copies a run and replaces one of its files with a link to the pipe.
func runWithPipe(t *testing.T, run string, file func(rundir.Dir) string, pipe string) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "run")
	if err := os.CopyFS(dir, os.DirFS(run)); err != nil {
		t.Fatal(err)
	}
	name := file(rundir.At(dir))
	if err := errors.Join(os.Remove(name), os.Symlink(pipe, name)); err != nil {
		t.Fatal(err)
	}
	return dir
}

func newestCheckpoint(t *testing.T) func(rundir.Dir) string {
	return func(d rundir.Dir) string {
		list, err := checkpoint.List(d.Checkpoints())
		if err != nil || len(list) == 0 {
			t.Fatalf("checkpoints %v, %v", list, err)
		}
		return list[len(list)-1].Path.Name
	}
}
