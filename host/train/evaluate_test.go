package train_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"github.com/cage-qat/cage/host/data/dataset"
	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/host/internal/testrun"
	"github.com/cage-qat/cage/host/train"
	"github.com/cage-qat/cage/host/train/assembly"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/step"
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
		loss, tokens, err := step.Evaluate(t.Context(), c, s, sequence(t, cfg, file, c.Batch()), batches)
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
func sequence(t *testing.T, cfg *config.Config, part *dataset.File, batch int) step.Sequence {
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
	if _, _, err := step.Evaluate(ctx, c, s, sequence(t, cfg, file, c.Batch()), 0); !errors.Is(err, context.Canceled) {
		t.Errorf("with a cancelled context: %v", err)
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
