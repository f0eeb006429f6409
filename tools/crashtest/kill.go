package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/cage-qat/cage/tools/syscallfault"
)

// Key identifies an experiment, in which a scenario is killed at its N-th call. The way in which it
// is killed depends on the round.
type Key struct {
	Scenario string `json:"scenario"`
	Round    int    `json:"round"`
	N        int    `json:"n"`
}

func (k Key) String() string { return fmt.Sprintf("%s:%d:%d", k.Scenario, k.Round, k.N) }

// Killed describes a kill.
type Killed struct {
	Call string `json:"call"` // name of the system call
	// path of the call's file, relative to the working directory; # stands for random digits
	Path string `json:"path"`
	All  bool   `json:"all"`            // all processes were killed, not only the one that called
	Torn bool   `json:"torn,omitempty"` // in the middle of a write
	Root bool   `json:"root"`           // the caller was the command itself
}

// Record is the outcome of an experiment.
type Record struct {
	Key
	Kills    []Killed `json:"kills"` // empty if the command ended before its call N
	Failures []string `json:"failures,omitempty"`
}

// plan describes how an experiment is performed. It is determined by the seed and the key.
type plan struct {
	all, torn bool
	second    int // call at which the command that continues is killed, too; 0: none
}

func (k Key) plan(seed uint64, calls int) plan {
	h := fnv.New64a()
	fmt.Fprint(h, k)
	random := rand.New(rand.NewPCG(seed, h.Sum64()))
	p := plan{all: random.IntN(2) == 0, torn: random.IntN(2) == 0}
	if random.IntN(4) == 0 {
		p.second = 1 + random.IntN(calls)
	}
	return p
}

// commandLimit is the time limit of a command. It allows for a busy machine.
const commandLimit = 2 * time.Minute

// orphanGrace is the time within which processes must notice the death of their parent.
var orphanGrace = 20 * time.Second

// workplace is a working directory that is used for one experiment after another.
type workplace struct {
	cage string // executable
	dir  string
	log  string
}

// command runs cage in the working directory. It calls decide with each system call that changes a
// file there, and its number n, starting at 1.
func (w workplace) command(
	ctx context.Context, args []string,
	decide func(n int, c syscallfault.Call) syscallfault.Decision,
) (syscallfault.Report, error) {
	ctx, cancel := context.WithTimeout(ctx, commandLimit)
	defer cancel()
	temporary := filepath.Join(w.dir, scratch)
	if err := os.MkdirAll(temporary, 0o700); err != nil {
		return syscallfault.Report{}, err
	}
	n := 0
	command := syscallfault.Command{
		Args: append([]string{w.cage}, args...), Dir: w.dir,
		Env:    append(os.Environ(), "TMPDIR="+temporary),
		Output: w.log, Grace: orphanGrace,
	}
	return syscallfault.Run(ctx, command, func(c syscallfault.Call) syscallfault.Decision {
		if !within(c.Path, w.dir) || within(c.Path, temporary) {
			return syscallfault.Decision{}
		}
		n++
		return decide(n, c)
	})
}

// within reports whether a path is in dir, or dir itself.
func within(path, dir string) bool { return path == dir || strings.HasPrefix(path, dir+"/") }

// clean empties the working directory and copies a template into it.
func (w workplace) clean(template string) error {
	for _, path := range []string{w.dir, w.log} {
		if err := os.RemoveAll(path); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(filepath.Dir(w.dir), 0o755); err != nil {
		return err
	}
	return copyTree(w.dir, template)
}

// undisturbed runs a command, which must succeed, and returns the number of its calls.
func (w workplace) undisturbed(ctx context.Context, args []string) (calls int, err error) {
	r, err := w.command(ctx, args,
		func(n int,
			_ syscallfault.Call) syscallfault.Decision {
			calls = n
			return syscallfault.Decision{}
		})
	if err == nil && (r.Code != 0 || len(r.Orphans) > 0) {
		said, _ := os.ReadFile(w.log)
		err = fmt.Errorf("cage %s: %s, orphans %v\n%s", strings.Join(args, " "), r.State, r.Orphans, said)
	}
	return calls, err
}

var digits = regexp.MustCompile(`\d{6,}$`)

// experiment is the state of a running experiment.
type experiment struct {
	workplace
	scenario Scenario
	whole    string // directory of the undisturbed run
	killed   string // receives a copy of the files after the kills
	record   Record
	late     bool // a command took longer than commandLimit
	alone    bool // a process that a command had started was killed without it
	orphaned bool // a command was killed without the trainings that it had started
}

func (e *experiment) fail(format string, args ...any) {
	e.record.Failures = append(e.record.Failures, fmt.Sprintf(format, args...))
}

// tooBusy reports whether a command exceeded its time limit, or cage gave up on a plugin that did
// not start or answer in time.
func (e *experiment) tooBusy() bool {
	said, err := os.ReadFile(e.log)
	return e.late || err == nil && (bytes.Contains(said, []byte("was not ready within")) ||
		bytes.Contains(said, []byte("did not answer within")))
}

// run kills the scenario at the key's call, then continues it and compares the files.
func (e *experiment) run(ctx context.Context, p plan) error {
	next, err := e.disturb(ctx, e.scenario.Run, e.record.N, p)
	if err != nil {
		return err
	}
	if p.second > 0 && len(e.record.Kills) > 0 {
		if next, err = e.disturb(ctx, next, p.second, p); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(e.killed); err != nil {
		return err
	}
	if err := copyTree(e.killed, e.dir); err != nil {
		return err
	}
	if len(e.record.Kills) > 0 {
		if _, err := e.disturb(ctx, next, 0, p); err != nil {
			return err
		}
	}
	if len(e.record.Failures) > 0 {
		return nil
	}
	found, err := differences(e.whole, e.dir, e.orphaned && e.scenario.Failed != nil)
	if err != nil {
		e.fail("%v", err)
	}
	e.record.Failures = append(e.record.Failures, found...)
	return nil
}

// disturb runs a command, kills it at a call, and checks the files. It returns the command with
// which to continue. A command that ends before that call must succeed.
func (e *experiment) disturb(ctx context.Context, args []string, at int,
	p plan) (next []string, err error) {
	var kill *Killed
	r, err := e.command(ctx, args, func(n int, c syscallfault.Call) syscallfault.Decision {
		if n != at {
			return syscallfault.Decision{}
		}
		path := strings.TrimPrefix(c.Path, e.dir+"/")
		kill = &Killed{Call: c.Name, Path: digits.ReplaceAllString(path, "#"), All: p.all,
			Torn: p.torn && c.Bytes > 1, Root: c.Root}
		if p.all {
			return syscallfault.Decision{Verdict: syscallfault.KillAll, Torn: p.torn}
		}
		return syscallfault.Decision{Verdict: syscallfault.KillCaller, Torn: p.torn}
	})
	if err != nil {
		if ctx.Err() != nil {
			return nil, err
		}
		e.late = errors.Is(err, context.DeadlineExceeded)
		e.fail("cage %s: %v", strings.Join(args, " "), err)
		return args, nil
	}
	if len(r.Orphans) > 0 {
		e.fail("processes %v outlived cage %s", r.Orphans, strings.Join(args, " "))
	}
	if kill == nil {
		if r.Code != 0 {
			e.fail("cage %s: %s", strings.Join(args, " "), r.State)
		}
		return args, nil
	}
	e.record.Kills = append(e.record.Kills, *kill)
	broken, err := torn(e.dir)
	if err != nil {
		return nil, err
	}
	e.record.Failures = append(e.record.Failures, broken...)
	e.alone = e.alone || !p.all && !kill.Root
	e.orphaned = e.orphaned || !p.all && kill.Root
	if e.alone && e.scenario.Failed != nil {
		return e.scenario.Failed, nil
	}
	return e.scenario.Again, nil
}
