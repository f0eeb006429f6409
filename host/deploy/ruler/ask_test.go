package ruler

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/internal/testing/crashfs"
	"github.com/cage-qat/cage/internal/testing/faultfs"
	"github.com/cage-qat/cage/internal/testing/testfile"
	"github.com/cage-qat/cage/internal/testing/testlevel"
	"github.com/cage-qat/cage/internal/testing/vfstest"
	"github.com/cage-qat/cage/internal/vfs"
)

func selected(t testing.TB, names []string) []Task {
	t.Helper()
	tasks, err := Select(names)
	if err != nil {
		t.Fatal(err)
	}
	return tasks
}

// planned is a plan without progress.
func planned(tasks []Task, samples, batch int, lengths ...int) Plan {
	return Plan{
		Tasks: tasks, Lengths: lengths, Samples: samples, Batch: batch, Model: ModelName{Name: "m"},
		Progress: func(Task, int, int, int) {},
	}
}

// askTwo asks a model the prompts of two tasks.
func askTwo(t *testing.T, d Directory, m Model, samples, batch int) error {
	t.Helper()
	p := planned(selected(t, []string{"fwe", "niah_multikey_3"}), samples, batch, 500)
	return d.Ask(t.Context(), &Generator{Count: countWords, Seed: DefaultSeed}, p, m)
}

// echo answers with the number of the batch and the length of the prompt.
func echo(asked *int) Model {
	return func(_ context.Context, prompts []string, newTokens int) (said []string, err error) {
		for _, p := range prompts {
			*asked++
			said = append(said, fmt.Sprintf("%d of %d with %d <tokens>", len(p), len(prompts), newTokens))
		}
		return said, nil
	}
}

func content(t *testing.T, path vfs.Path) string {
	t.Helper()
	text, err := path.ReadFile()
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestGoingOn: wherever the file of answers was cut off, the same answers are in the end,
// and no more than a batch is asked again.
func TestGoingOn(t *testing.T) {
	const samples, batch = 7, 3
	d, asked := At(vfs.At(t.TempDir())), 0
	if err := askTwo(t, d, echo(&asked), samples, batch); err != nil {
		t.Fatal(err)
	}
	if asked != 2*samples {
		t.Errorf("%d prompts were asked, want %d", asked, 2*samples)
	}
	path := d.answers(500, selected(t, []string{"niah_multikey_3"})[0])
	want := content(t, path)
	damaged := strings.Replace(want, `"pred"`, "\x00\n", 5) // as after a loss of power
	testfile.Write(t, path.Name, damaged)
	if err := askTwo(t, d, echo(&asked), samples, batch); err != nil || content(t, path) != want {
		t.Errorf("a damaged file is not mended: %v", err)
	}
	for _, size := range cuts(want) {
		testfile.Write(t, path.Name, want[:size])
		asked = 0
		if err := askTwo(t, d, echo(&asked), samples, batch); err != nil {
			t.Fatalf("cut at %d: %v", size, err)
		}
		if got := content(t, path); got != want {
			t.Fatalf("cut at %d of %d: other answers:\n%s", size, len(want), cmp.Diff(want, got))
		}
		if missing := samples - strings.Count(want[:size], "\n"); asked > missing+batch-1 {
			t.Errorf("cut at %d: %d prompts were asked, and %d answers were missing", size, asked, missing)
		}
	}
}

// cuts are the ends of lines, and places around them.
func cuts(text string) []int {
	list := []int{0, 1}
	for i, c := range text {
		if c == '\n' {
			list = append(list, i, i+1, min(i+2, len(text)))
		}
	}
	return list
}

// TestMoreSamples: when more samples are wanted, answers to the first stay.
func TestMoreSamples(t *testing.T) {
	d, asked := At(vfs.At(t.TempDir())), 0
	if err := askTwo(t, d, echo(&asked), 3, 2); err != nil {
		t.Fatal(err)
	}
	path := d.answers(500, selected(t, []string{"fwe"})[0])
	before := content(t, path)
	if err := askTwo(t, d, echo(&asked), 5, 2); err != nil {
		t.Fatal(err)
	}
	after := content(t, path)
	first := before[:strings.LastIndex(strings.TrimSpace(before), "\n")+1] // a batch and a half
	if !strings.HasPrefix(after, first) || strings.Count(after, "\n") != 5 {
		t.Errorf("the answers were\n%s\nand became\n%s", before, after)
	}
	if asked != 2*3+2*3 {
		t.Errorf("%d prompts were asked, want 12", asked)
	}
}

// TestOtherPrompts: answers to other prompts are not taken for answers.
func TestOtherPrompts(t *testing.T) {
	d, asked := At(vfs.At(t.TempDir())), 0
	if err := askTwo(t, d, echo(&asked), 2, 2); err != nil {
		t.Fatal(err)
	}
	path := d.answers(500, selected(t, []string{"fwe"})[0])
	testfile.Write(t, path.Name, `{"index":0,"pred":"x","input":"another","outputs":["y"]}`+"\n")
	err := askTwo(t, d, echo(&asked), 2, 2)
	if err == nil || !strings.Contains(err.Error(), "line 1 answers another prompt") {
		t.Errorf("the error is %v", err)
	}
}

// TestModelFails: the error of a model ends the work, and the answers before it stay.
func TestModelFails(t *testing.T) {
	d := At(vfs.At(t.TempDir()))
	broken := errors.New("out of memory")
	calls := 0
	err := askTwo(t, d, func(_ context.Context, prompts []string, _ int) ([]string, error) {
		if calls++; calls == 2 {
			return nil, broken
		}
		return prompts, nil
	}, 4, 3)
	if !errors.Is(err, broken) {
		t.Errorf("the error is %v", err)
	}
	if got := strings.Count(content(t, d.answers(500, selected(t, []string{"niah_multikey_3"})[0])), "\n"); got != 3 {
		t.Errorf("%d answers are kept, want 3", got)
	}
	err = askTwo(t, d, func(context.Context, []string, int) ([]string, error) { return nil, nil }, 4, 3)
	if err == nil || !strings.Contains(err.Error(), "0 answers to 1 prompts") {
		t.Errorf("the error is %v", err)
	}
}

// TestLeftOut: tasks without an input are named in the manifest.
func TestLeftOut(t *testing.T) {
	_, inputs := readGolden(t)
	for essay, want := range map[string]int{"": 1, inputs.Essay: 0} {
		d := At(vfs.At(t.TempDir()))
		g := &Generator{Count: countWords, Seed: DefaultSeed}
		g.Inputs.Words, g.Inputs.Essay = inputs.Words, essay
		asked := 0
		p := planned(selected(t, []string{"fwe", "niah_single_2"}), 1, 1, 1000)
		if err := d.Ask(t.Context(), g, p, echo(&asked)); err != nil {
			t.Fatal(err)
		}
		m, err := d.Manifest()
		if err != nil || len(m.LeftOut) != want || asked == 0 {
			t.Errorf("with the essay %.10q…: left out %v, error %v", essay, m.LeftOut, err)
		}
	}
}

// measure makes prompts and lets the model answer them.
func measure(files vfs.FS, dir string) error {
	tasks, err := Select([]string{"fwe"})
	if err != nil {
		return err
	}
	d := At(vfs.On(files, dir))
	g := &Generator{Count: countWords, Seed: DefaultSeed}
	asked := 0
	return d.Ask(context.Background(), g, planned(tasks, 3, 2, 300), echo(&asked))
}

// again demands that the same measurement in a directory ends in the same files.
func again(t *testing.T, what, dir string, want map[string]string) {
	t.Helper()
	if err := measure(vfs.OS, dir); err != nil {
		t.Errorf("%s: it cannot go on: %v", what, err)
		return
	}
	if diff := cmp.Diff(want, vfstest.Contents(t, dir)); diff != "" {
		t.Errorf("%s: the files differ:\n%s", what, diff)
	}
}

// TestFaults: whichever operation on files fails, once or with all after it, it is
// reported, and the same measurement again ends as one that nothing disturbed.
func TestFaults(t *testing.T) {
	reference := t.TempDir()
	if err := measure(vfs.OS, reference); err != nil {
		t.Fatal(err)
	}
	want := vfstest.Contents(t, reference)
	every := testlevel.Sample(5, 1, 1)
	for files := range faultfs.Each(t, every, 30) {
		dir := filepath.Join(t.TempDir(), "out")
		err := measure(files, dir)
		again(t, files.Reported(t, err), dir, want)
	}
}

// TestPowerLoss: at whatever moment the power fails, the same measurement ends in the same
// files.
func TestPowerLoss(t *testing.T) {
	root := t.TempDir()
	files, err := crashfs.New(root)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(root, "out")
	if err := measure(files, dir); err != nil {
		t.Fatal(err)
	}
	want := vfstest.Contents(t, dir)
	for lost, what := range files.Each(t, uint64(testlevel.Choose(2, 12)), 40) {
		again(t, what, filepath.Join(lost, "out"), want)
	}
}

// TestLocked: a second process is sent away.
func TestLocked(t *testing.T) {
	d, asked := At(vfs.At(t.TempDir())), 0
	lock, err := d.path.Join(vfs.LockFile).Lock()
	if err != nil {
		t.Fatal(err)
	}
	err = askTwo(t, d, echo(&asked), 2, 1)
	if err == nil || !strings.Contains(err.Error(), "another process is working on it") {
		t.Errorf("the error is %v", err)
	}
	if err := errors.Join(lock.Unlock(), askTwo(t, d, echo(&asked), 2, 1)); err != nil {
		t.Error(err)
	}
}
