package train_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/data/dataset"
	"github.com/cage-qat/cage/host/deploy/trained"
	"github.com/cage-qat/cage/host/testing/testrun"
	"github.com/cage-qat/cage/host/train"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/host/train/step"
	"github.com/cage-qat/cage/internal/plaintoml"
	"github.com/cage-qat/cage/internal/testing/testlevel"
)

// TestConversations checks that a fine-tuning takes the number of steps from its epochs, that a
// resumed run gives the same bits, and that the tokens in the loss are counted.
func TestConversations(t *testing.T) {
	cfg := testrun.ChatConfig(t)
	summary := testrun.Train(t, cfg, train.Options{})
	f, err := dataset.Open(cfg.Data.Train[0])
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if learned := f.Header().Learned; summary.Tokens != 2*learned {
		t.Errorf("%d targets, want those of two epochs of %d", summary.Tokens, learned)
	}
	if summary.Steps != summary.TotalSteps || summary.Steps < 4 {
		t.Errorf("%d of %d steps", summary.Steps, summary.TotalSteps)
	}
	stored, err := config.Load(rundir.At(cfg.Train.Out).Config().Name, nil)
	if err != nil || stored.Train.Steps != summary.Steps {
		t.Errorf("run.toml has %d steps, %v", stored.Train.Steps, err)
	}
	inParts(t, cfg, 3)

	opened := opened(t, cfg.Train.Out, trained.Options{})
	if loss, _, err := opened.Evaluate(t.Context(), 0); err != nil ||
		loss != float64(*summary.ValLoss) {
		t.Errorf("opened again it evaluates to %v, %v; the run to %v", loss, err, *summary.ValLoss)
	}
}

// TestConversationsOfFewSteps checks that the schedule must fit the steps that the data gives.
func TestConversationsOfFewSteps(t *testing.T) {
	for key, schedule := range map[string][]string{
		"schedule.warmup": {"schedule.warmup=500.0"},
		"schedule.decay":  {`schedule.kind="wsd"`, "schedule.warmup=0.3", "schedule.decay=0.9"},
	} {
		cfg := testrun.ChatConfig(t, schedule...)
		_, err := train.Run(t.Context(), cfg, train.Options{Finder: testrun.Finder(t)})
		if e, ok := errors.AsType[*plaintoml.Error](err); !ok || e.Key != key ||
			!strings.Contains(e.Hint, "train.steps") {
			t.Errorf("%q: error %v, want one of %s", schedule, err, key)
		}
		if _, err := os.Stat(cfg.Train.Out); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%q: a run directory was made: %v", schedule, err)
		}
	}
}

// TestPackingChangesNoLoss checks that conversations have the same mean loss packed into shared
// sequences and one per sequence.
func TestPackingChangesNoLoss(t *testing.T) {
	for name, quantizer := range map[string]string{"full precision": `quantizer={plugin="none"}`,
		"weights and activations": `quantizer={plugin="absmax", bits=8}`} {
		t.Run(name, func(t *testing.T) {
			evaluate := func(packing string) (float64, int64) {
				cfg := testrun.ChatConfig(t, quantizer, "model.vocab=256",
					fmt.Sprintf("data.packing=%q", packing))
				plan := testrun.Plan(t, cfg)
				c := testrun.Compile(t, plan)
				s := testrun.Upload(t, c, testrun.Params(plan.Model, 3))
				f, err := dataset.Open(cfg.Data.Train[0])
				if err != nil {
					t.Fatal(err)
				}
				defer f.Close()
				means, err := step.Evaluate(t.Context(), c, s, sequence(t, cfg, f, c.Batch()), 0)
				if err != nil || means[0].Targets != f.Header().Learned {
					t.Fatalf("%v of %d targets, %v", means, f.Header().Learned, err)
				}
				return means[0].Loss, means[0].Targets
			}
			packed, _ := evaluate("first_fit")
			alone, _ := evaluate("none")
			if d := relative(packed, alone); !(d <= 1e-6) {
				t.Errorf("packed %v, alone %v: the relative difference is %.2g", packed, alone, d)
			}
		})
	}
}

// TestMicroBatchesOfConversations checks that the loss of a step is the mean over all its targets,
// for any number of micro-batches.
func TestMicroBatchesOfConversations(t *testing.T) {
	first := func(batch, accumulate int) (loss float64) {
		cfg := testrun.ChatConfig(t, `quantizer={plugin="none"}`, "method={form=\"off\"}",
			"train.steps=1", fmt.Sprintf("train.batch=%d", batch),
			fmt.Sprintf("train.accumulate=%d", accumulate))
		testrun.Train(t, cfg, train.Options{})
		return float64(records(t, cfg.Train.Out)[0].Loss)
	}
	want := first(4, 1)
	for _, c := range [][2]int{{2, 2}, {1, 4}} {
		if got := first(c[0], c[1]); relative(got, want) > 1e-6 {
			t.Errorf("batch %d, accumulate %d: the loss is %v, want %v", c[0], c[1], got, want)
		}
	}
}

// TestMeanOfMicroBatches checks that with train.loss_mean = "micro_batch", the loss of a step is
// the mean of its micro-batches' mean losses, although their numbers of targets differ.
func TestMeanOfMicroBatches(t *testing.T) {
	losses := func(batch, accumulate int, mean string) []float64 {
		cfg := testrun.ChatConfig(t, `quantizer={plugin="none"}`, "method={form=\"off\"}",
			"schedule.rate=1e-12", "train.weight_decay=0.0", "data.epochs=1",
			fmt.Sprintf("train.batch=%d", batch), fmt.Sprintf("train.accumulate=%d", accumulate),
			fmt.Sprintf("train.loss_mean=%q", mean))
		testrun.Train(t, cfg, train.Options{})
		var list []float64
		for _, r := range records(t, cfg.Train.Out) {
			list = append(list, float64(r.Loss))
		}
		return list
	}
	alone := losses(2, 1, "token") // nothing is learned at this rate: the same rows, two at a time
	means, tokens := losses(2, 2, "micro_batch"), losses(2, 2, "token")
	if want := (alone[0] + alone[1]) / 2; relative(means[0], want) > 1e-6 {
		t.Errorf("the loss is %v, want the mean %v of %v and %v", means[0], want, alone[0], alone[1])
	}
	if relative(means[0], tokens[0]) < 1e-5 {
		t.Errorf("both means are %v: the micro-batches have the same numbers of targets", means[0])
	}
}

// TestMeanOfMicroBatchesOfTexts checks the same for texts with separate documents. A run cannot be
// resumed with the other mean, whose losses differ.
func TestMeanOfMicroBatchesOfTexts(t *testing.T) {
	testlevel.Long(t, "trains several runs")
	// A pretrained model, so that windows have different losses.
	first, init := pretrained(t, "model.context=192", "schedule.rate=0.02")
	one := testrun.Elsewhere(t, first, init, "method={form=\"off\"}", "schedule.rate=1e-12",
		"train.weight_decay=0.0", `data.documents="separate"`,
		"train.batch=1", "train.steps=8", "train.log_every=1")
	testrun.Train(t, one, train.Options{})
	two := testrun.Elsewhere(t, one, "train.accumulate=2", "train.steps=4",
		`train.loss_mean="micro_batch"`)
	runParts(t, two, 1)
	other := testrun.Again(t, two, `train.loss_mean="token"`)
	refused(t, "resumed with the other mean", other, train.Options{Resume: true},
		"cannot resume with another configuration:\n  train.loss_mean was \"micro_batch\", is \"token\"")
	testrun.Train(t, testrun.Again(t, two), train.Options{Resume: true})
	tokens := testrun.Elsewhere(t, two, `train.loss_mean="token"`)
	testrun.Train(t, tokens, train.Options{})
	alone, means, others := records(t, one.Train.Out), records(t, two.Train.Out),
		records(t, tokens.Train.Out)
	apart := 0.0
	for i := range 4 {
		apart = max(apart, relative(float64(means[i].Loss), float64(others[i].Loss)))
		if want := float64(alone[2*i].Loss+alone[2*i+1].Loss) / 2; means[i].Step != i+1 ||
			relative(float64(means[i].Loss), want) > 1e-6 {
			t.Errorf("step %d: the loss is %v, want %v in step %d", means[i].Step, means[i].Loss, want, i+1)
		}
	}
	if apart < 1e-5 {
		t.Errorf("the losses are those of the other mean, %.2g apart: the micro-batches have the same "+
			"numbers of targets", apart)
	}
}

// TestTooManySteps checks that more steps than the epochs give are refused.
func TestTooManySteps(t *testing.T) {
	cfg := testrun.ChatConfig(t, "train.steps=1000")
	refused(t, "more steps than the epochs give", cfg, train.Options{},
		"train.steps: 1000 steps, but data.epochs = 2")
}

// TestSeparateDocuments checks a training with separate documents: it has fewer targets and another
// loss than with joined documents, and a resumed run gives the same bits.
func TestSeparateDocuments(t *testing.T) {
	testlevel.Long(t, "trains several runs")
	joined := testrun.Config(t, "train.steps=6", "model.context=64", "train.final_eval_batches=0")
	separate := testrun.Elsewhere(t, joined, `data.documents="separate"`)
	a, b := testrun.Train(t, joined, train.Options{}), testrun.Train(t, separate, train.Options{})
	if b.Tokens >= a.Tokens || b.Tokens < a.Tokens/2 || *a.ValLoss == *b.ValLoss {
		t.Errorf("joined: %d targets, loss %v; separate: %d, %v", a.Tokens, *a.ValLoss, b.Tokens,
			*b.ValLoss)
	}
	inParts(t, separate, 3)
}

// flip changes one bit of the last token of a file, which stays in the vocabulary.
func flip(t *testing.T, path string) {
	t.Helper()
	content := read(t, path)
	content[len(content)-2] ^= 1
	write(t, path, content)
}

// verifiedData returns the hashes of the data in the provenance of a run.
func verifiedData(t *testing.T, dir string) []string {
	t.Helper()
	text, err := rundir.At(dir).Provenance().ReadFile()
	if err != nil {
		t.Fatal(err)
	}
	var p struct{ Data []struct{ SHA256 string } }
	if err := json.Unmarshal(text, &p); err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, d := range p.Data {
		list = append(list, d.SHA256)
	}
	return list
}

// TestDamagedData checks that a run with damaged token files ends with an error and without a
// checkpoint or result, wherever it is stopped. When the file is repaired, the run can be resumed
// and equals an undisturbed one.
func TestDamagedData(t *testing.T) {
	testlevel.Long(t, "trains several runs")
	whole := testrun.Config(t)
	testrun.Train(t, whole, train.Options{})
	recorded, err := config.Load(rundir.At(whole.Train.Out).Config().Name, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := verifiedData(t, whole.Train.Out); len(got) != 2 || got[0] != recorded.Data.TrainSHA256 ||
		got[1] != recorded.Data.ValidationSHA256 {
		t.Errorf("the provenance records %q, the configuration %+v", got, recorded.Data)
	}
	for name, file := range map[string]func(*config.Config) string{
		"training":   func(c *config.Config) string { return c.Data.Train[0] },
		"validation": func(c *config.Config) string { return c.Data.Validation },
	} {
		for _, stop := range []int{0, 1} {
			t.Run(name, func(t *testing.T) {
				cfg := testrun.Config(t)
				flip(t, file(cfg))
				_, err := train.Run(context.Background(), cfg,
					train.Options{Finder: testrun.Finder(t), StopAfter: stop})
				if _, ok := errors.AsType[*dataset.FormatError](err); !ok {
					t.Fatalf("a damaged file: error %v", err)
				}
				leftNothing(t, cfg.Train.Out)
				flip(t, file(cfg))
				testrun.Train(t, cfg, train.Options{Resume: true})
				testrun.SameRun(t, "after the repair", whole.Train.Out, cfg.Train.Out)
			})
		}
	}
}

func leftNothing(t *testing.T, dir string) {
	t.Helper()
	if got := verifiedData(t, dir); len(got) > 0 {
		t.Errorf("the provenance records %q", got)
	}
	if list, err := filepath.Glob(filepath.Join(rundir.At(dir).Checkpoints().Name,
		"*.safetensors")); err != nil || len(list) > 0 {
		t.Errorf("checkpoints %q, %v", list, err)
	}
	text, err := rundir.At(dir).Summary().ReadFile()
	if err != nil {
		t.Fatal(err)
	}
	var s struct {
		Completed bool     `json:"completed"`
		Error     string   `json:"error"`
		TrainLoss *float64 `json:"train_loss"`
		ValLoss   *float64 `json:"val_loss"`
	}
	if err := json.Unmarshal(text, &s); err != nil {
		t.Fatal(err)
	}
	if s.Completed || s.Error == "" || s.TrainLoss != nil || s.ValLoss != nil {
		t.Errorf("the summary has results, or no error: %s", text)
	}
}
