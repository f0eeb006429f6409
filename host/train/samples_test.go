package train_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/go-hclog"

	"github.com/cage-qat/cage/host/data/dataset"
	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/host/deploy/trained"
	"github.com/cage-qat/cage/host/model/generate"
	"github.com/cage-qat/cage/host/testing/testrun"
	"github.com/cage-qat/cage/host/train"
	"github.com/cage-qat/cage/host/train/build"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/metrics"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/host/train/step"
	"github.com/cage-qat/cage/internal/testing/testlevel"
	"github.com/cage-qat/cage/internal/vfs"
)

const twoPrompts = `train.samples=["the quick", "func returns"]`

// TestSamples checks that sampling texts does not change the bits of a training, and that the same
// seed gives the same texts, at each evaluation and at the end.
func TestSamples(t *testing.T) {
	testlevel.Long(t, "trains many times")
	for _, quantizer := range []string{"quest", "lsq"} {
		t.Run(quantizer, func(t *testing.T) {
			silent := testrun.Config(t, "train.eval_every=4", "train.steps=10",
				`quantizer.plugin="`+quantizer+`"`)
			writing := testrun.Elsewhere(t, silent, twoPrompts, "train.sample_tokens=9")
			testrun.Train(t, silent, train.Options{})
			testrun.Train(t, writing, train.Options{})
			testrun.SameRun(t, "a run that writes texts", silent.Train.Out, writing.Train.Out)
			if _, err := os.Stat(rundir.At(silent.Train.Out).Samples().Name); err == nil {
				t.Error("a run that was not asked to has written texts")
			}
			again := testrun.Elsewhere(t, writing)
			testrun.Train(t, again, train.Options{})
			if diff := cmp.Diff(samplesOf(t, writing), samplesOf(t, again)); diff != "" {
				t.Errorf("the same run wrote other texts:\n%s", diff)
			}
			var steps []int
			for _, s := range readSamples(t, writing) {
				steps = append(steps, s.Step)
				if len(s.Texts) != 2 || s.Texts[0].Prompt != "the quick" ||
					s.Texts[1].Prompt != "func returns" || s.Texts[0].Text == "" {
					t.Errorf("step %d: %+v", s.Step, s.Texts)
				}
			}
			if !slices.Equal(steps, []int{4, 8, 10}) {
				t.Errorf("texts of steps %v", steps)
			}
		})
	}
}

// TestSamplesAsGenerated checks that the last texts are those that the run's checkpoint generates.
func TestSamplesAsGenerated(t *testing.T) {
	cfg := testrun.Config(t, "train.steps=6", "train.eval_every=0", `train.samples="the quick"`,
		"train.sample_tokens=12", "train.sample_temperature=0")
	testrun.Train(t, cfg, train.Options{})
	opened := opened(t, cfg.Train.Out, trained.Options{NoData: true, Generate: 1})
	want, err := opened.Generate(t.Context(), "the quick", generate.Options{Tokens: 12}, nil)
	if err != nil {
		t.Fatal(err)
	}
	want = strings.ToValidUTF8(want, "\ufffd")
	if diff := cmp.Diff(
		[]metrics.Sample{{Step: 6, Texts: []metrics.Text{{Prompt: "the quick", Text: want}}}},
		readSamples(t, cfg)); diff != "" {
		t.Errorf("texts (-want +got):\n%s", diff)
	}
}

// TestSamplesEnd checks that texts end with the EOS tokens of the initial checkpoint. Here all
// tokens are EOS tokens.
func TestSamplesEnd(t *testing.T) {
	cfg, dir := testrun.FromHub(t, "train.eval_every=0", `train.samples="the quick"`,
		"train.sample_tokens=5")
	all := make([]int, 256)
	for i := range all {
		all[i] = i
	}
	ends, err := json.Marshal(map[string][]int{"eos_token_id": all})
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "generation_config.json"), ends, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	testrun.Train(t, cfg, train.Options{})
	if diff := cmp.Diff([]metrics.Sample{{Step: 1, Texts: []metrics.Text{{Prompt: "the quick"}}}},
		readSamples(t, cfg)); diff != "" {
		t.Errorf("texts (-want +got):\n%s", diff)
	}
}

// TestSamplesWithoutTokenizer checks that a run that cannot encode its prompts does not begin, so
// that the corrected command does not need --resume.
func TestSamplesWithoutTokenizer(t *testing.T) {
	const hub = "../model/huggingface/testdata/llama32"
	tok, err := tokenizer.Open(hub)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "train.tokens")
	w, err := dataset.NewWriter(vfs.At(file), dataset.Origin{Tokenizer: tok.Info()})
	if err != nil {
		t.Fatal(err)
	}
	ids, err := tok.Encode(strings.Repeat("the quick brown fox ", 100))
	if err := errors.Join(err, w.WriteDocument(ids, nil)); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Commit(); err != nil {
		t.Fatal(err)
	}
	cfg := testrun.Config(t, fmt.Sprintf("data.train=%q", file),
		fmt.Sprintf("data.validation=%q", file), "train.steps=2", twoPrompts)
	refused(t, "without a tokenizer", cfg, train.Options{}, "tokenizer.json was not found")
	if _, err := os.Stat(cfg.Train.Out); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("there is a run directory: %v", err)
	}
	cfg = testrun.Again(t, cfg, fmt.Sprintf("data.tokenizer=%q", hub))
	testrun.Train(t, cfg, train.Options{})
	if list := readSamples(t, cfg); len(list) != 1 || len(list[0].Texts) != 2 {
		t.Errorf("texts %+v", list)
	}
}

// unsynced is a file system on which the samples cannot be synced after they have been written.
type unsynced struct{ vfs.FS }

func (u unsynced) OpenFile(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	f, err := u.FS.OpenFile(name, flag, perm)
	if err == nil && filepath.Base(name) == rundir.SamplesFile {
		f = &unsyncedFile{File: f}
	}
	return f, err
}

type unsyncedFile struct {
	vfs.File
	written bool
}

func (f *unsyncedFile) Write(p []byte) (int, error) {
	f.written = true
	return f.File.Write(p)
}

func (f *unsyncedFile) Sync() error {
	if f.written {
		return syscall.ENOSPC
	}
	return f.File.Sync()
}

// TestSamplesNotSynced checks that samples that cannot be synced cause a warning, not an error.
func TestSamplesNotSynced(t *testing.T) {
	cfg := testrun.Config(t, "train.eval_every=2", "train.steps=6", "train.checkpoint_every=1",
		twoPrompts, "train.sample_tokens=2")
	var log bytes.Buffer
	testrun.Train(t, cfg,
		train.Options{Files: unsynced{vfs.OS},
			Logger: hclog.New(&hclog.LoggerOptions{Output: &log, Level: hclog.Warn})})
	if !strings.Contains(log.String(), "samples may not be on disk") {
		t.Errorf("nothing is said of it: %s", &log)
	}
	if list := readSamples(t, cfg); len(list) != 3 {
		t.Errorf("texts %+v", list)
	}
}

// TestSamplesResumed checks that a run that was stopped, or killed at the worst moments, ends with
// the same texts as an undisturbed run.
func TestSamplesResumed(t *testing.T) {
	testlevel.Long(t, "trains several runs")
	whole := testrun.Config(t, "train.eval_every=3", "train.steps=9", twoPrompts,
		"train.sample_tokens=5", "train.checkpoint_every=3")
	testrun.Train(t, whole, train.Options{})
	stopped := testrun.Elsewhere(t, whole)
	runParts(t, stopped, 2, 3, 7)
	testrun.Train(t, testrun.Again(t, stopped), train.Options{Resume: true})
	same := func(what string, cfg *config.Config) {
		t.Helper()
		if diff := cmp.Diff(samplesOf(t, whole), samplesOf(t, cfg)); diff != "" {
			t.Errorf("%s (-whole +resumed):\n%s", what, diff)
		}
	}
	same("a run that was stopped", stopped)

	dir := rundir.At(stopped.Train.Out)
	// As if killed after the texts of the last step, before the record of their evaluation.
	cutLastLine(t, dir.Metrics().Name)
	if err := os.Remove(dir.Summary().Name); err != nil {
		t.Fatal(err)
	}
	testrun.Train(t, testrun.Again(t, stopped), train.Options{Resume: true})
	same("a run that was killed between texts and record", stopped)
	testrun.SameRun(t, "a run that was killed between texts and record", whole.Train.Out,
		stopped.Train.Out)
	testrun.Train(t, testrun.Again(t, stopped), train.Options{Resume: true})
	same("a finished run that was resumed", stopped)
}

// cutLastLine truncates the last line of a file to its first bytes.
func cutLastLine(t *testing.T, path string) {
	t.Helper()
	text := read(t, path)
	kept := text[:strings.LastIndexByte(strings.TrimSuffix(string(text), "\n"), '\n')+5]
	write(t, path, kept)
}

func samplesOf(t *testing.T, cfg *config.Config) string {
	t.Helper()
	text, err := rundir.At(cfg.Train.Out).Samples().ReadFile()
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func readSamples(t *testing.T, cfg *config.Config) []metrics.Sample {
	t.Helper()
	list, err := metrics.Read[metrics.Sample](rundir.At(cfg.Train.Out).Samples())
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// TestEvaluateCountsEveryToken compares evaluations in batches of 4, the last of which has 3
// windows, with one window at a time: each is the mean over all tokens.
func TestEvaluateCountsEveryToken(t *testing.T) {
	const context16, windows = 16, 7
	path := filepath.Join(t.TempDir(), "val.tokens")
	w, err := dataset.NewWriter(vfs.At(path), dataset.Origin{Tokenizer: tokenizer.Bytes{}.Info()})
	if err != nil {
		t.Fatal(err)
	}
	// A few tokens more than 7 windows and the last target. The document starts with the tokenizer's
	// BOS token, if it has one.
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
		means, err := step.Evaluate(t.Context(), c, s, sequence(t, cfg, file, c.Batch()), batches)
		if err != nil {
			t.Fatal(err)
		}
		return means[0].Loss, means[0].Targets
	}
	for _, c := range []struct{ batches, single, windows int }{{0, 0, 7}, {2, 7, 7}, {1, 4, 4},
		{100, 100, 7}} {
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

// sequence returns the batches for an evaluation on a part.
func sequence(t *testing.T, cfg *config.Config, part *dataset.File, batch int) step.Sequence {
	t.Helper()
	s, err := build.OpenSequence(cfg, part, batch)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// stopEvaluation checks that an evaluation ends with its context.
func stopEvaluation(t *testing.T, file *dataset.File) {
	cfg := testrun.Config(t, "model.vocab=300")
	c := testrun.Compile(t, testrun.Plan(t, cfg))
	s, err := c.NewState(t.Context(), 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := step.Evaluate(ctx, c, s, sequence(t, cfg, file, c.Batch()), 0); !errors.Is(err,
		context.Canceled) {
		t.Errorf("with a cancelled context: %v", err)
	}
}

// TestLateEvaluation checks that an evaluation after a resume is recorded as if it had been done at
// once, with the losses of its step even if these were not recorded.
func TestLateEvaluation(t *testing.T) {
	whole := testrun.Config(t, "train.checkpoint_every=5", "train.log_every=3")
	testrun.Train(t, whole, train.Options{})
	cfg := testrun.Elsewhere(t, whole)
	var mend func()
	console := &callAt{at: map[string]func(){"step 6/20": func() {
		mend = cut(t, cfg.Data.Validation)
	}}}
	if _, err := train.Run(t.Context(), testrun.Again(t, cfg),
		train.Options{Finder: testrun.Finder(t), Console: console}); err == nil || newest(t, cfg) != 8 {
		t.Fatalf("the evaluation after step 8 did not fail: %v, and the newest checkpoint is of step %d",
			err, newest(t, cfg))
	}
	mend()
	testrun.Train(t, testrun.Again(t, cfg), train.Options{Resume: true})
	testrun.SameRun(t, "evaluated at once, and when it goes on", whole.Train.Out, cfg.Train.Out)
}
