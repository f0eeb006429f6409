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

// plan makes prompts of two tasks in a directory.
func plan(t *testing.T, samples int) (Directory, Plan) {
	t.Helper()
	d := At(vfs.At(t.TempDir()))
	return d, write(t, d, samples)
}

func write(t *testing.T, d Directory, samples int) Plan {
	t.Helper()
	tasks := selected(t, []string{"fwe", "niah_multikey_3"})
	g := &Generator{Count: countWords, Seed: DefaultSeed}
	p, err := g.Write(context.Background(), d, Plan{Tasks: tasks, Lengths: []int{500}, Samples: samples})
	if err != nil {
		t.Fatal(err)
	}
	return p
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
	d, p := plan(t, samples)
	asked := 0
	if err := d.Ask(context.Background(), p, echo(&asked), batch); err != nil {
		t.Fatal(err)
	}
	if asked != 2*samples {
		t.Errorf("%d prompts were asked, want %d", asked, 2*samples)
	}
	path := d.answers(500, p.Tasks[1])
	want := content(t, path)
	damaged := strings.Replace(want, `"pred"`, "\x00\n", 5) // as after a loss of power
	testfile.Write(t, path.Name, damaged)
	if err := d.Ask(context.Background(), p, echo(&asked), batch); err != nil || content(t, path) != want {
		t.Errorf("a damaged file is not mended: %v", err)
	}
	for _, size := range cuts(want) {
		testfile.Write(t, path.Name, want[:size])
		asked = 0
		if err := d.Ask(context.Background(), p, echo(&asked), batch); err != nil {
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
	d, p := plan(t, 3)
	asked := 0
	if err := d.Ask(context.Background(), p, echo(&asked), 2); err != nil {
		t.Fatal(err)
	}
	p = write(t, d, 5)
	before := content(t, d.answers(500, p.Tasks[0]))
	if err := d.Ask(context.Background(), p, echo(&asked), 2); err != nil {
		t.Fatal(err)
	}
	after := content(t, d.answers(500, p.Tasks[0]))
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
	d, p := plan(t, 2)
	path := d.answers(500, p.Tasks[0])
	if err := path.Dir().MkdirAll(); err != nil {
		t.Fatal(err)
	}
	testfile.Write(t, path.Name, `{"index":0,"pred":"x","input":"another","outputs":["y"]}`+"\n")
	asked := 0
	err := d.Ask(context.Background(), p, echo(&asked), 2)
	if err == nil || !strings.Contains(err.Error(), "line 1 answers another prompt") {
		t.Errorf("the error is %v", err)
	}
}

// TestModelFails: the error of a model ends the work, and the answers before it stay.
func TestModelFails(t *testing.T) {
	d, p := plan(t, 4)
	broken := errors.New("out of memory")
	calls := 0
	err := d.Ask(context.Background(), p, func(_ context.Context, prompts []string, _ int) ([]string, error) {
		if calls++; calls == 2 {
			return nil, broken
		}
		return prompts, nil
	}, 3)
	if !errors.Is(err, broken) {
		t.Errorf("the error is %v", err)
	}
	if got := strings.Count(content(t, d.answers(500, p.Tasks[0])), "\n"); got != 3 {
		t.Errorf("%d answers are kept, want 3", got)
	}
	err = d.Ask(context.Background(), p, func(context.Context, []string, int) ([]string, error) { return nil, nil }, 3)
	if err == nil || !strings.Contains(err.Error(), "0 answers to 1 prompts") {
		t.Errorf("the error is %v", err)
	}
}

// TestLeftOut: a task is named as left out until it has prompts, and not again when its input is missing later.
func TestLeftOut(t *testing.T) {
	_, inputs := readGolden(t)
	tasks := selected(t, []string{"fwe", "niah_single_2"})
	d := At(vfs.At(t.TempDir()))
	for _, step := range []struct {
		essay string
		want  bool
	}{{"", true}, {inputs.Essay, false}, {"", false}} {
		g := &Generator{Count: countWords, Seed: DefaultSeed}
		g.Inputs.Words, g.Inputs.Essay = inputs.Words, step.essay
		if _, err := g.Write(context.Background(), d, Plan{Tasks: tasks, Lengths: []int{1000}, Samples: 1}); err != nil {
			t.Fatal(err)
		}
		m, err := d.Manifest()
		if err != nil {
			t.Fatal(err)
		}
		if _, out := m.LeftOut["niah_single_2"]; out != step.want {
			t.Errorf("with the essay %.10q…: left out %v", step.essay, m.LeftOut)
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
	p, err := g.Write(context.Background(), d, Plan{Tasks: tasks, Lengths: []int{300}, Samples: 3})
	if err != nil {
		return err
	}
	asked := 0
	return d.Ask(context.Background(), p, echo(&asked), 2)
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
	for files := range faultfs.Each(t, every, 50) {
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
	for lost, what := range files.Each(t, uint64(testlevel.Choose(2, 12)), 50) {
		again(t, what, filepath.Join(lost, "out"), want)
	}
}

// TestLocked: a second process is sent away.
func TestLocked(t *testing.T) {
	d, p := plan(t, 2)
	lock, err := d.lock()
	if err != nil {
		t.Fatal(err)
	}
	asked := 0
	err = d.Ask(context.Background(), p, echo(&asked), 1)
	if err == nil || !strings.Contains(err.Error(), "another process is working on it") {
		t.Errorf("the error is %v", err)
	}
	if err := errors.Join(lock.Unlock(), d.Ask(context.Background(), p, echo(&asked), 1)); err != nil {
		t.Error(err)
	}
}
