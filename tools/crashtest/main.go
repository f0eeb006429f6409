// Command crashtest kills cage at every system call that changes files, and checks that nothing is
// lost:
//
//	make build && go run ./tools/crashtest
//
// It can be interrupted at any time and continued with the same command. At the end, it prints how
// many experiments failed, also before an interruption, and exits with code 1 if anything was lost.
//
// For each scenario (a training run, a study, the preparation of data), it counts the system calls
// that change a file in an undisturbed run. For each of them, it then runs the scenario again and
// kills it there: either the process that makes the call or all processes, before the call or in
// the middle of its write. The files on disk must then be complete; the same command, run again as
// documented, must succeed; and all files must then be identical to those of the undisturbed run,
// except for times.
//
// This package defines the scenarios and the checks. Package syscallfault stops a process at a
// system call.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/cage-qat/cage/internal/vfs"
	"github.com/cage-qat/cage/tools/syscallfault"
)

// options configures a crash test.
type options struct {
	Cage     string        // executable, with its plugins beside it
	Dir      string        // directory for results
	Seed     uint64        // determines the kind of each kill, and the order of the kills
	Rounds   int           // number of experiments at each call
	For      time.Duration // how long experiments begin once all is prepared; 0: all are done
	Parallel int           // number of experiments at once
	Only     string        // SCENARIO, SCENARIO:ROUND or SCENARIO:ROUND:CALL; empty: all
	Out      io.Writer     // receives progress messages
}

// subject is a scenario that has been run undisturbed.
type subject struct {
	Scenario
	dir   string
	calls int // of an undisturbed run
}

func (s subject) template() string { return filepath.Join(s.dir, "template") }
func (s subject) whole() string    { return filepath.Join(s.dir, "whole") }

type runner struct {
	options
	results  *results
	subjects map[string]subject
	mu       sync.Mutex // guards Out
}

// experiments performs the experiments that have no stored result, and returns all outcomes. For
// each failure, it saves the files and prints the command that repeats the experiment.
func experiments(ctx context.Context, o options, scenarios []Scenario) ([]Record, error) {
	build, err := identity(o.Cage)
	if err != nil {
		return nil, err
	}
	if err := syscallfault.Supported(ctx); err != nil {
		return nil, err
	}
	o.Dir = filepath.Join(o.Dir, fmt.Sprintf("%s-seed%d", build, o.Seed))
	if err := os.MkdirAll(o.Dir, 0o755); err != nil {
		return nil, err
	}
	c := &runner{options: o, subjects: map[string]subject{}}
	if c.results, err = openResults(vfs.At(filepath.Join(o.Dir, "results.jsonl"))); err != nil {
		return nil, err
	}
	defer c.results.log.Close()
	for _, s := range scenarios {
		if name, _, _ := strings.Cut(o.Only, ":"); name != "" && name != s.Name {
			continue
		}
		if err := c.prepare(ctx, s); err != nil {
			return nil, fmt.Errorf("%s, undisturbed: %w", s.Name, err)
		}
	}
	err = c.doAll(ctx)
	return c.results.records, err
}

// prepare creates a scenario's template and runs the scenario undisturbed.
func (c *runner) prepare(ctx context.Context, s Scenario) error {
	sub := subject{Scenario: s, dir: filepath.Join(c.Dir, s.Name)}
	if err := os.RemoveAll(sub.dir); err != nil {
		return err
	}
	for name, text := range s.Files {
		path := filepath.Join(sub.template(), name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return err
		}
	}
	b := workplace{cage: c.Cage, dir: sub.template(), log: filepath.Join(sub.dir, "log")}
	for _, args := range s.Before {
		if _, err := b.undisturbed(ctx, args); err != nil {
			return err
		}
	}
	b.dir = sub.whole()
	if err := b.clean(sub.template()); err != nil {
		return err
	}
	var err error
	sub.calls, err = b.undisturbed(ctx, s.Run)
	c.subjects[s.Name] = sub
	return err
}

// keys lists the remaining experiments, round by round. Within a round the order is random, so that
// a test that is stopped early has covered a random sample.
func (c *runner) keys() []Key {
	random := rand.New(rand.NewPCG(c.Seed, 0))
	var list []Key
	for round := range c.Rounds {
		var keys []Key
		for _, s := range c.subjects {
			for n := range s.calls {
				keys = append(keys, Key{s.Name, round, n + 1})
			}
		}
		slices.SortFunc(keys, func(a, b Key) int { return strings.Compare(a.String(), b.String()) })
		random.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
		list = append(list, keys...)
	}
	return slices.DeleteFunc(list, func(k Key) bool {
		if c.Only == k.String() { // repeated on request
			return false
		}
		return c.Only != "" && !strings.HasPrefix(k.String()+":", c.Only+":") || c.results.has(k)
	})
}

// doAll performs the experiments, several at a time.
func (c *runner) doAll(ctx context.Context) error {
	keys := c.keys()
	end := time.Now().Add(c.For)
	fmt.Fprintf(c.Out, "%d scenarios, %d experiments to do, %d done before, in %s\n", len(c.subjects),
		len(keys), len(c.results.records), c.Dir)
	queue := make(chan Key)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var workers sync.WaitGroup
	for i := range c.Parallel {
		workers.Go(func() {
			for k := range queue {
				if err := c.do(ctx, i, k); err != nil {
					cancel(fmt.Errorf("%s: %w", k, err))
				}
			}
		})
	}
	for i, k := range keys {
		// at least one experiment begins, so that success means something
		if c.For > 0 && i > 0 && time.Now().After(end) || ctx.Err() != nil {
			break
		}
		queue <- k
		if i%100 == 99 {
			c.mu.Lock()
			fmt.Fprintf(c.Out, "%d of %d\n", i+1, len(keys))
			c.mu.Unlock()
		}
	}
	close(queue)
	workers.Wait()
	if err := context.Cause(ctx); err != nil {
		return err
	}
	failed := 0
	for _, r := range c.results.records { // also those of earlier, interrupted campaigns
		if len(r.Failures) > 0 {
			failed++
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d experiments failed", failed)
	}
	return nil
}

// tries is the maximum number of attempts of an experiment on a busy machine.
const tries = 3

// do performs an experiment and stores its outcome. It repeats the experiment if the machine was
// too busy, because that is not a failure of cage.
func (c *runner) do(ctx context.Context, worker int, k Key) error {
	for left := tries; ; left-- {
		e, err := c.try(ctx, worker, k)
		if err != nil {
			return err
		}
		if len(e.record.Failures) > 0 && e.tooBusy() && left > 1 {
			continue
		}
		if err := c.results.add(e.record); err != nil {
			return err
		}
		if len(e.record.Failures) == 0 {
			return nil
		}
		return c.keep(filepath.Dir(e.dir), e)
	}
}

func (c *runner) try(ctx context.Context, worker int, k Key) (*experiment, error) {
	s := c.subjects[k.Scenario]
	dir := filepath.Join(c.Dir, fmt.Sprintf("worker-%d", worker))
	e := &experiment{
		workplace: workplace{
			cage: c.Cage, dir: filepath.Join(dir, "work"), log: filepath.Join(dir, "log")},
		scenario: s.Scenario, whole: s.whole(),
		killed: filepath.Join(dir, "killed"), record: Record{Key: k},
	}
	if err := e.clean(s.template()); err != nil {
		return nil, err
	}
	return e, e.run(ctx, k.plan(c.Seed, s.calls))
}

// keep saves the files of a failed experiment, and prints the command that repeats it.
func (c *runner) keep(dir string, e *experiment) error {
	kept := filepath.Join(c.Dir, "failures", strings.ReplaceAll(e.record.Key.String(), ":", "-"))
	if err := errors.Join(os.RemoveAll(kept), os.MkdirAll(filepath.Dir(kept), 0o755),
		os.Rename(dir, kept)); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	fmt.Fprintf(c.Out, "FAILED %s:\n", e.record.Key)
	for _, k := range e.record.Kills {
		fmt.Fprintf(c.Out, "  killed at %s %s (%+v)\n", k.Call, k.Path, k)
	}
	for _, f := range e.record.Failures {
		fmt.Fprintf(c.Out, "  %s\n", f)
	}
	fmt.Fprintf(c.Out,
		"  what the kill left, what came of it and what was said: %s/{killed,work,log}\n", kept)
	fmt.Fprintf(c.Out, "  again: go run ./tools/crashtest -seed %d -only %s\n", c.Seed, e.record.Key)
	return nil
}

func main() {
	syscallfault.Launch()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx)
	switch {
	case errors.Is(err, syscallfault.ErrUnsupported):
		fmt.Println("crashtest: skipped:", err)
	case err != nil:
		fmt.Fprintln(os.Stderr, "crashtest:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	o := options{Out: os.Stdout}
	flag.StringVar(&o.Cage, "cage", "bin/cage", "the executable to kill, with its plugins beside it")
	flag.StringVar(&o.Dir, "dir", "campaign", "directory of results and of what failed")
	flag.Uint64Var(&o.Seed, "seed", 1, "seed of how each kill is done, and of their order")
	flag.IntVar(&o.Rounds, "rounds", 1,
		"experiments at each system call, which differ in how the kill is done")
	flag.DurationVar(&o.For, "for", 0,
		"begin no experiment later than this after all is prepared; 0: do all")
	flag.IntVar(&o.Parallel, "parallel", 2, "experiments at once")
	flag.StringVar(&o.Only, "only", "", "`SCENARIO[:ROUND[:CALL]]`, as failures are printed")
	flag.Parse()
	var err error
	if o.Cage, err = filepath.Abs(o.Cage); err != nil {
		return err
	}
	if o.Dir, err = filepath.Abs(o.Dir); err != nil {
		return err
	}
	records, err := experiments(ctx, o, scenarios())
	if len(records) > 0 {
		summarize(os.Stdout, records)
	}
	return err
}
