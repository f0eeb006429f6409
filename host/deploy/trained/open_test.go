package trained_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/cage-qat/cage/host/data/dataset"
	"github.com/cage-qat/cage/host/deploy/trained"
	"github.com/cage-qat/cage/host/model/generate"
	"github.com/cage-qat/cage/host/testing/testrun"
	"github.com/cage-qat/cage/host/train"
	"github.com/cage-qat/cage/host/train/checkpoint"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/metrics"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/internal/testing/testfile"
	"github.com/cage-qat/cage/internal/testing/testlevel"
)

func open(t *testing.T, dir string, o trained.Options) *trained.Model {
	t.Helper()
	opened, err := trained.Open(t.Context(), dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(opened.Close)
	return opened
}

// TestLastPointOfCurve checks that the last point of the loss curve uses as many batches as those
// before, and that the summary has the loss over the batches of the final evaluation.
func TestLastPointOfCurve(t *testing.T) {
	testlevel.Long(t, "trains and evaluates again")
	for every, during := range map[int]int{10: 1, 0: 0} {
		cfg := testrun.Config(t, fmt.Sprint("train.eval_every=", every), "train.eval_batches=1",
			"train.final_eval_batches=0")
		summary := testrun.Train(t, cfg, train.Options{})
		opened := open(t, cfg.Train.Out, trained.Options{Finder: testrun.Finder(t)})
		written := records(t, cfg.Train.Out)
		last := written[len(written)-1]
		for what, have := range map[string]struct {
			loss    *metrics.Number
			batches int
		}{"summary": {summary.ValLoss, 0}, "curve": {last.ValLoss, during}} {
			want, targets, err := opened.Evaluate(t.Context(), have.batches)
			if err != nil || have.loss == nil || float64(*have.loss) != want {
				t.Errorf("evaluations every %d steps: the loss of the %s is %v, want %v of %d targets (%v)",
					every, what, have.loss, want, targets, err)
			}
		}
		if same := *last.ValLoss == *summary.ValLoss; same != (during == 0) {
			t.Errorf("evaluations every %d steps: curve and summary are the same: %v", every, same)
		}
	}
}

// TestOpen checks that an opened checkpoint evaluates as in the run, and generates.
func TestOpen(t *testing.T) {
	cfg := testrun.Config(t, "train.checkpoint_every=8", "train.keep=5", "train.final_eval_batches=0",
		"train.eval_batches=0")
	summary := testrun.Train(t, cfg, train.Options{})
	dir, finder := cfg.Train.Out, testrun.Finder(t)
	at := func(step int) float64 {
		opened := open(t, dir, trained.Options{Step: step, Finder: finder})
		loss, _, err := opened.Evaluate(t.Context(), 0)
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
	opened := open(t, dir, trained.Options{Generate: 1, Finder: finder})
	first, err := opened.Generate(t.Context(), "the quick ",
		generate.Options{Tokens: 20, Temperature: 0.8, Seed: 1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	second, err := opened.Generate(t.Context(), "the quick ",
		generate.Options{Tokens: 20, Temperature: 0.8, Seed: 1}, nil)
	if err != nil || first != second || first == "" {
		t.Errorf("generated %q and %q, error %v", first, second, err)
	}
	tok, err := opened.Tokenizer()
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []int32{-1, 1 << 20} {
		if _, err := opened.Continue(t.Context(), tok, []int32{'a', id}, generate.Options{Tokens: 1}, nil,
			nil); err == nil || !strings.Contains(err.Error(), fmt.Sprint("has the token ", id)) {
			t.Errorf("behind the token %d, which the model does not have: %v", id, err)
		}
	}
	// A training may remove the checkpoint.
	source, err := trained.OpenSource(dir, 8, 0, hclog.NewNullLogger())
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	want := at(8)
	if err := checkpoint.RemoveAll(rundir.At(dir).Checkpoints()); err != nil {
		t.Fatal(err)
	}
	for range 2 { // it stays open
		held, err := trained.Open(t.Context(), dir, trained.Options{Source: source, Finder: finder})
		if err != nil {
			t.Fatal(err)
		}
		got, _, err := held.Evaluate(t.Context(), 0)
		if held.Close(); err != nil || got != want {
			t.Errorf("a removed checkpoint evaluates to %v, want %v; %v", got, want, err)
		}
	}
}

// TestContinueAll checks that texts continued together are the same as alone, also if there are
// fewer than the model was opened for.
func TestContinueAll(t *testing.T) {
	all := func(int32) bool { return false }
	cfg := testrun.Config(t)
	stopAfterTwo(t, cfg)
	open := func(sequences int) *trained.Model {
		opened := open(t, cfg.Train.Out,
			trained.Options{Generate: sequences, NoData: true, Finder: testrun.Finder(t)})
		return opened
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
		got, err := three.ContinueAll(t.Context(), tok, prompts[:n], greedy, nil, all)
		if err != nil || !slices.Equal(got, want[:n]) {
			t.Errorf("%d together are continued with %q, alone with %q (%v)", n, got, want[:n], err)
		}
	}
	for _, n := range []int{0, 4} {
		if _, err := three.ContinueAll(t.Context(), tok, make([][]int32, n), greedy, nil,
			all); err == nil {
			t.Errorf("%d sequences were continued by a run that was opened for 3", n)
		}
	}
}

func TestOpenMistakes(t *testing.T) {
	cfg := testrun.Config(t)
	finder := testrun.Finder(t)
	if _, err := trained.Open(t.Context(), t.TempDir(), trained.Options{Finder: finder}); err == nil {
		t.Error("an empty directory was opened")
	}
	stopAfterTwo(t, cfg)
	if _, err := trained.Open(t.Context(), cfg.Train.Out,
		trained.Options{Finder: finder, Step: 7}); err == nil {
		t.Error("a step without checkpoint was opened")
	}
	opened := open(t, cfg.Train.Out, trained.Options{Finder: finder})
	if opened.Step() != 2 {
		t.Errorf("opened step %d, want 2", opened.Step())
	}
	if _, err := opened.Generate(t.Context(), "x", generate.Options{Tokens: 1}, nil); err == nil {
		t.Error("a run that was opened for evaluation generated")
	}
}

// TestEvaluateFullPrecision checks that a run with gradients in full precision can be evaluated
// with quantizers that its training cannot have: of activations, and with trained parameters, which
// have their initial values.
func TestEvaluateFullPrecision(t *testing.T) {
	testlevel.Long(t, "trains and compiles several models")
	full := testrun.Config(t, `quantizer={weights={plugin="absmax"}}`, `method={gradient="full"}`,
		"train.steps=2")
	lotion := testrun.Config(t, `quantizer={weights={plugin="absmax"}}`, `method={name="lotion"}`,
		"train.steps=2")
	for _, cfg := range []*config.Config{full, lotion} {
		testrun.Train(t, cfg, train.Options{})
	}
	for method, cfg := range map[string]*config.Config{"lotion": lotion, "gradient = full": full} {
		for _, q := range []*trained.Quantizer{{Plugin: "mxfp4"}, {Plugin: "lsq", WeightsOnly: true}} {
			opened, err := trained.Open(t.Context(), cfg.Train.Out,
				trained.Options{Quantizer: q, Finder: testrun.Finder(t)})
			if err != nil {
				t.Errorf("%s, %s: %v", method, q, err)
				continue
			}
			if loss, _, err := opened.Evaluate(t.Context(), 1); err != nil || !(loss > 0 && loss < 8) {
				t.Errorf("%s, %s: loss %v, error %v", method, q, loss, err)
			}
			opened.Close()
		}
	}
}

// TestEvaluateDamagedData checks that an evaluation on a damaged file is an error.
func TestEvaluateDamagedData(t *testing.T) {
	cfg := testrun.Config(t)
	testrun.Train(t, cfg, train.Options{})
	opened := open(t, cfg.Train.Out, trained.Options{Finder: testrun.Finder(t)})
	flip(t, cfg.Data.Validation)
	_, _, err := opened.Evaluate(t.Context(), 1)
	if _, ok := errors.AsType[*dataset.FormatError](err); !ok {
		t.Errorf("error %v", err)
	}
}

// flip changes one bit of the last token of a file, which stays in the vocabulary.
func flip(t *testing.T, path string) {
	t.Helper()
	content := testfile.Read(t, path)
	content[len(content)-2] ^= 1
	testfile.Write(t, path, content)
}

func relative(got, want float64) float64 { return math.Abs(got-want) / math.Abs(want) }

func records(t *testing.T, dir string) []metrics.Record {
	t.Helper()
	list, err := metrics.Read[metrics.Record](rundir.At(dir).Metrics())
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func stopAfterTwo(t *testing.T, cfg *config.Config) {
	t.Helper()
	if _, err := train.Run(t.Context(), cfg,
		train.Options{StopAfter: 2, Finder: testrun.Finder(t)}); !errors.Is(err, train.ErrInterrupted) {
		t.Fatal(err)
	}
}

func TestMain(m *testing.M) { testrun.Main(m) }
