package train_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/data/dataset"
	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/host/internal/testrun"
	"github.com/cage-qat/cage/host/model/generate"
	"github.com/cage-qat/cage/host/train"
	"github.com/cage-qat/cage/host/train/assembly"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/metrics"
	"github.com/cage-qat/cage/internal/vfs"
)

// TestEvaluateCountsEveryToken compares evaluations in batches of 4, whose last one
// has 3 windows, with one window at a time: each is the mean over all tokens.
func TestEvaluateCountsEveryToken(t *testing.T) {
	const context16, windows = 16, 7
	path := filepath.Join(t.TempDir(), "val.tokens")
	w, err := dataset.NewWriter(vfs.At(path), dataset.Origin{Tokenizer: tokenizer.Bytes{}.Info()})
	if err != nil {
		t.Fatal(err)
	}
	// A few tokens more than 7 windows and the last target; the document's first token
	// is the tokenizer's own, if it has one.
	if err := w.WriteDocument(testrun.Tokens(1, 1, windows*context16+9, 256), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Commit(); err != nil {
		t.Fatal(err)
	}
	file, err := dataset.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	evaluate := func(batch string, batches int) (float64, int64) {
		cfg := testrun.Config(t, "model.vocab=300", batch)
		plan := testrun.Plan(t, cfg)
		c := testrun.Compile(t, plan)
		s := testrun.Upload(t, c, testrun.Params(plan.Model, 3))
		loss, tokens, err := train.Evaluate(t.Context(), c, s, sequence(t, cfg, file, c.Batch()), batches)
		if err != nil {
			t.Fatal(err)
		}
		return loss, tokens
	}
	for _, c := range []struct{ batches, single, windows int }{{0, 0, 7}, {2, 7, 7}, {1, 4, 4}, {100, 100, 7}} {
		loss, tokens := evaluate("train.batch=4", c.batches)
		want, _ := evaluate("train.batch=1", c.single)
		if tokens != int64(c.windows*context16) {
			t.Errorf("%d batches: %d tokens, want %d", c.batches, tokens, c.windows*context16)
		}
		if d := relative(loss, want); !(d <= 1e-6) {
			t.Errorf("%d batches: loss %v, one by one %v", c.batches, loss, want)
		}
	}
	stopEvaluation(t, file)
}

// sequence reads a part to evaluate a configuration on.
func sequence(t *testing.T, cfg *config.Config, part *dataset.File, batch int) assembly.Sequence {
	t.Helper()
	s, err := assembly.OpenSequence(cfg, part, batch)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// stopEvaluation: an evaluation ends with its context.
func stopEvaluation(t *testing.T, file *dataset.File) {
	cfg := testrun.Config(t, "model.vocab=300")
	c := testrun.Compile(t, testrun.Plan(t, cfg))
	s, err := c.NewState(1, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := train.Evaluate(ctx, c, s, sequence(t, cfg, file, c.Batch()), 0); !errors.Is(err, context.Canceled) {
		t.Errorf("with a cancelled context: %v", err)
	}
}

// TestLastPointOfCurve: the last point of the curve is of as many batches as those before, and the summary has the loss
// over those for the end.
func TestLastPointOfCurve(t *testing.T) {
	for every, during := range map[int]int{10: 1, 0: 0} {
		cfg := testrun.Config(t, fmt.Sprint("train.eval_every=", every), "train.eval_batches=1", "train.final_eval_batches=0")
		summary := testrun.Train(t, cfg, train.Options{})
		trained, err := train.Open(t.Context(), cfg.Train.Out, train.OpenOptions{Finder: testrun.Finder(t)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { trained.Close() })
		written := records(t, cfg.Train.Out)
		last := written[len(written)-1]
		for what, have := range map[string]struct {
			loss    *metrics.Number
			batches int
		}{"summary": {summary.ValLoss, 0}, "curve": {last.ValLoss, during}} {
			want, targets, err := trained.Evaluate(t.Context(), have.batches)
			if err != nil || have.loss == nil || float64(*have.loss) != want {
				t.Errorf("evaluations every %d steps: the loss of the %s is %v, want %v of %d targets (%v)", every, what, have.loss, want, targets, err)
			}
		}
		if same := *last.ValLoss == *summary.ValLoss; same != (during == 0) {
			t.Errorf("evaluations every %d steps: curve and summary are the same: %v", every, same)
		}
	}
}

// TestOpen: a checkpoint that is opened evaluates as the run did, and generates.
func TestOpen(t *testing.T) {
	cfg := testrun.Config(t, "train.checkpoint_every=8", "train.keep=5", "train.final_eval_batches=0", "train.eval_batches=0")
	summary := testrun.Train(t, cfg, train.Options{})
	dir, finder := cfg.Train.Out, testrun.Finder(t)
	at := func(step int) float64 {
		trained, err := train.Open(t.Context(), dir, train.OpenOptions{Step: step, Finder: finder})
		if err != nil {
			t.Fatal(err)
		}
		defer trained.Close()
		loss, _, err := trained.Evaluate(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		return loss
	}
	if got, want := at(0), float64(*summary.ValLoss); got != want {
		t.Errorf("the newest checkpoint evaluates to %v, the run to %v", got, want)
	}
	for _, r := range records(t, dir) {
		if r.ValLoss != nil && r.Step < 20 {
			if got, want := at(r.Step), float64(*r.ValLoss); got != want {
				t.Errorf("step %d evaluates to %v, in the run to %v", r.Step, got, want)
			}
		}
	}
	trained, err := train.Open(t.Context(), dir, train.OpenOptions{Generate: 1, Finder: finder})
	if err != nil {
		t.Fatal(err)
	}
	defer trained.Close()
	first, err := trained.Generate(t.Context(), "the quick ", generate.Options{Tokens: 20, Temperature: 0.8, Seed: 1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	second, err := trained.Generate(t.Context(), "the quick ", generate.Options{Tokens: 20, Temperature: 0.8, Seed: 1}, nil)
	if err != nil || first != second || first == "" {
		t.Errorf("generated %q and %q, error %v", first, second, err)
	}
	tok, err := trained.Tokenizer()
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []int32{-1, 1 << 20} {
		if _, err := trained.Continue(t.Context(), tok, []int32{'a', id}, generate.Options{Tokens: 1}, nil, nil); err == nil || !strings.Contains(err.Error(), fmt.Sprint("has the token ", id)) {
			t.Errorf("behind the token %d, which the model does not have: %v", id, err)
		}
	}
}

// TestContinueAll: texts that are continued together are those that are continued alone,
// also where there are fewer than the run was opened for.
func TestContinueAll(t *testing.T) {
	cfg := testrun.Config(t)
	runParts(t, cfg, 2)
	open := func(sequences int) *train.Trained {
		trained, err := train.Open(t.Context(), cfg.Train.Out, train.OpenOptions{Generate: sequences, NoData: true, Finder: testrun.Finder(t)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(trained.Close)
		return trained
	}
	one, three := open(1), open(3)
	tok, err := one.Tokenizer()
	if err != nil {
		t.Fatal(err)
	}
	greedy := generate.Options{Tokens: 12}
	prompts := [][]int32{{'t', 'h', 'e', ' '}, {'a'}, {'f', 'o', 'x'}}
	var want []string
	for _, p := range prompts {
		text, err := one.Continue(t.Context(), tok, p, greedy, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, text)
	}
	for n := 1; n <= 3; n++ {
		got, err := three.ContinueAll(t.Context(), tok, prompts[:n], greedy)
		if err != nil || !slices.Equal(got, want[:n]) {
			t.Errorf("%d together are continued with %q, alone with %q (%v)", n, got, want[:n], err)
		}
	}
	for _, n := range []int{0, 4} {
		if _, err := three.ContinueAll(t.Context(), tok, make([][]int32, n), greedy); err == nil {
			t.Errorf("%d sequences were continued by a run that was opened for 3", n)
		}
	}
}

func TestOpenMistakes(t *testing.T) {
	cfg := testrun.Config(t)
	finder := testrun.Finder(t)
	if _, err := train.Open(t.Context(), t.TempDir(), train.OpenOptions{Finder: finder}); err == nil {
		t.Error("an empty directory was opened")
	}
	runParts(t, cfg, 2)
	if _, err := train.Open(t.Context(), cfg.Train.Out, train.OpenOptions{Finder: finder, Step: 7}); err == nil {
		t.Error("a step without checkpoint was opened")
	}
	trained, err := train.Open(t.Context(), cfg.Train.Out, train.OpenOptions{Finder: finder})
	if err != nil {
		t.Fatal(err)
	}
	defer trained.Close()
	if trained.Step() != 2 {
		t.Errorf("opened step %d, want 2", trained.Step())
	}
	if _, err := trained.Generate(t.Context(), "x", generate.Options{Tokens: 1}, nil); err == nil {
		t.Error("a run that was opened for evaluation generated")
	}
}

// TestLateEvaluation: an evaluation that a run does when it goes on is recorded as if it had
// been done at once, with the losses of its step also where these were not recorded.
func TestLateEvaluation(t *testing.T) {
	whole := testrun.Config(t, "train.checkpoint_every=5", "train.log_every=3")
	testrun.Train(t, whole, train.Options{})
	cfg := testrun.Elsewhere(t, whole)
	var mend func()
	console := &callAt{at: map[string]func(){"step 6/20": func() { mend = cut(t, cfg.Data.Validation) }}}
	if _, err := train.Run(t.Context(), testrun.Again(t, cfg), train.Options{Finder: testrun.Finder(t), Console: console}); err == nil || newest(t, cfg) != 8 {
		t.Fatalf("the evaluation after step 8 did not fail: %v, and the newest checkpoint is of step %d", err, newest(t, cfg))
	}
	mend()
	testrun.Train(t, testrun.Again(t, cfg), train.Options{Resume: true})
	testrun.SameRun(t, "evaluated at once, and when it goes on", whole.Train.Out, cfg.Train.Out)
}
