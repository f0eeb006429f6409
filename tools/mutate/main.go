// Command mutate tells what the tests of packages do not notice. It changes one place of
// their code at a time (an operator, a condition, a number, a statement, an error that is
// returned), runs the tests and prints a row of a table: the place, the change, and the
// test that failed, or that none did. Nothing is written into the source tree: the
// changed file is an overlay of the go command.
//
//	go run ./tools/mutate -n 20 ./host/compute/lower ./host/model
//
// Places are drawn by a seed, so that the same command on the same commit makes the same
// mutants. One that does not compile is replaced by the next one.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

func main() {
	n := flag.Int("n", 20, "number of mutants that compile")
	seed := flag.Uint64("seed", 1, "seed of their choice")
	limit := flag.Duration("timeout", 10*time.Minute, "time for the tests of a package; a mutant that takes longer is killed")
	also := flag.String("also", "", "packages, separated by commas, whose tests are run when those of the package itself pass")
	at := flag.String("at", "", "change only places that contain this text, such as config/key.go:71:")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	t := tester{limit: *limit, also: strings.FieldsFunc(*also, func(r rune) bool { return r == ',' })}
	if err := t.run(ctx, *n, *seed, *at, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

type tester struct {
	scratch string
	limit   time.Duration
	also    []string
}

// run makes n mutants of packages and prints what became of them.
func (t *tester) run(ctx context.Context, n int, seed uint64, at string, patterns []string) error {
	if len(patterns) == 0 {
		return errors.New("name packages, such as ./host/compute/lower")
	}
	mutants, err := mutantsIn(ctx, at, patterns)
	if err != nil {
		return err
	}
	if err := t.sound(ctx, mutants); err != nil {
		return err
	}
	if t.scratch, err = os.MkdirTemp("", "cage-mutate"); err != nil {
		return err
	}
	defer os.RemoveAll(t.scratch)
	fmt.Println("| place | what becomes of it | killed by |\n|---|---|---|")
	made, survived := 0, 0
	for _, i := range rand.New(rand.NewPCG(seed, 0)).Perm(len(mutants)) {
		if made == n || ctx.Err() != nil {
			break
		}
		by, compiles, err := t.try(ctx, mutants[i])
		if err != nil {
			return err
		}
		if !compiles || ctx.Err() != nil {
			continue
		}
		if made++; by == "" {
			by = "**nothing**"
			survived++
		}
		fmt.Printf("| %s | %s → %s | %s |\n", mutants[i].place(), cell(mutants[i].old), cell(mutants[i].with), by)
	}
	fmt.Printf("\n%d mutants of %d places, seed %d: %d killed, %d survived\n", made, len(mutants), seed, made-survived, survived)
	return ctx.Err()
}

// sound fails when a test does without any mutant: it would seem to kill them all.
func (t *tester) sound(ctx context.Context, mutants []mutant) error {
	packages := slices.Clone(t.also)
	for _, m := range mutants {
		packages = append(packages, m.pkg())
	}
	slices.Sort(packages)
	out, err := exec.CommandContext(ctx, "go", append([]string{"test", "-p", "1", "-timeout", t.limit.String()}, slices.Compact(packages)...)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("a test fails without any change:\n%s", out)
	}
	return nil
}

// cell is code in a table, on one line.
func cell(code string) string {
	if code = strings.Join(strings.Fields(code), " "); code == "" {
		return "nothing"
	}
	return "`" + strings.ReplaceAll(code, "|", `\|`) + "`"
}

// mutantsIn lists the mutants of packages whose places contain a text.
func mutantsIn(ctx context.Context, at string, patterns []string) ([]mutant, error) {
	list := exec.CommandContext(ctx, "go", append([]string{"list", "-f", `{{range .GoFiles}}{{$.Dir}}/{{.}}{{"\n"}}{{end}}`}, patterns...)...)
	list.Stderr = os.Stderr
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	here, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	var all []mutant
	for _, path := range strings.Fields(string(out)) {
		name, err := filepath.Rel(here, path)
		if err != nil {
			return nil, err
		}
		found, err := mutantsOf(name)
		if err != nil {
			return nil, err
		}
		all = append(all, slices.DeleteFunc(found, func(m mutant) bool { return !strings.Contains(m.place(), at) })...)
	}
	return all, nil
}

// try runs the tests on a mutant. by is the test that failed, empty for none.
func (t *tester) try(ctx context.Context, m mutant) (by string, compiles bool, err error) {
	text, err := os.ReadFile(m.file)
	if err != nil {
		return "", false, err
	}
	path, err := filepath.Abs(m.file)
	if err != nil {
		return "", false, err
	}
	changed, overlay := filepath.Join(t.scratch, "mutant.go"), filepath.Join(t.scratch, "overlay.json")
	description, err := json.Marshal(map[string]any{"Replace": map[string]string{path: changed}})
	if err != nil {
		return "", false, err
	}
	if err := errors.Join(os.WriteFile(changed, m.apply(text), 0o600), os.WriteFile(overlay, description, 0o600)); err != nil {
		return "", false, err
	}
	own := m.pkg()
	if exec.CommandContext(ctx, "go", "build", "-overlay", overlay, own).Run() != nil {
		return "", false, nil
	}
	for _, pkg := range append([]string{own}, t.also...) {
		limit, cancel := context.WithTimeout(ctx, t.limit+time.Minute)
		out, failed := exec.CommandContext(limit, "go", "test", "-overlay", overlay, "-p", "1", "-count=1", "-failfast", "-timeout", t.limit.String(), pkg).CombinedOutput()
		cancel()
		if failed != nil {
			return killer(pkg, string(out)), true, nil
		}
	}
	return "", true, nil
}

var (
	failed  = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)
	running = regexp.MustCompile(`(?m)^\s*running tests:\n\s+(\S+)`)
)

// killer names the test that failed, or says what happened instead.
func killer(pkg, out string) string {
	what := "an early end"
	if m := failed.FindStringSubmatch(out); m != nil {
		what = "`" + m[1] + "`"
	} else if m := running.FindStringSubmatch(out); m != nil {
		what = "the time limit, in `" + m[1] + "`"
	} else if strings.Contains(out, "panic: ") {
		what = "a panic"
	} else if strings.Contains(out, "[build failed]") {
		what = "tests that do not compile"
	}
	return what + " of " + strings.TrimPrefix(pkg, "./")
}
