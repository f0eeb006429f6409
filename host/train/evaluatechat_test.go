package train_test

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/host/internal/testrun"
	"github.com/cage-qat/cage/host/train"
)

// hubConversations writes random conversations in the tokens of a checkpoint of the hub.
func hubConversations(t *testing.T, dir string, seed uint64, documents int) string {
	t.Helper()
	tok, err := tokenizer.LoadHuggingFace(filepath.Join(dir, tokenizer.DefinitionFile))
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(seed, 2))
	return testrun.ChatFile(t, tok.Info(), func(yield func([]int32, []bool) bool) {
		for range documents {
			ids, loss := make([]int32, 3+rng.IntN(20)), []bool(nil) // some are longer than a row
			for i := range ids {
				ids[i], loss = rng.Int32N(300), append(loss, i > 0 && rng.IntN(2) == 0 || i == 1)
			}
			if !yield(ids, loss) {
				return
			}
		}
	})
}

// lossOn is the loss of a model on a file, and the number of targets in it.
func lossOn(t *testing.T, dir string, o train.OpenOptions) (float64, int64) {
	t.Helper()
	o.Finder = testrun.Finder(t)
	trained, err := train.Open(t.Context(), dir, o)
	if err != nil {
		t.Fatal(err)
	}
	defer trained.Close()
	loss, targets, err := trained.Evaluate(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	return loss, targets
}

// TestEvaluateOnConversations: on the same conversations the same weights have one loss, that over what is learned, whether a
// training on them computes it, or the file is named for that run, for a run that has known texts only, or for a checkpoint
// of the hub.
func TestEvaluateOnConversations(t *testing.T) {
	cfg, hub := fromHub(t, "model.context=16", "train.final_eval_batches=0")
	chat := hubConversations(t, hub, 1, 9)
	validation := hubConversations(t, hub, 2, 21)
	talks := testrun.Elsewhere(t, cfg, `data.kind="chat"`, fmt.Sprintf("data.train=%q", chat), fmt.Sprintf("data.validation=%q", validation))
	summary := testrun.Train(t, talks, train.Options{})
	want := float64(*summary.ValLoss)
	imported := filepath.Join(t.TempDir(), "imported")
	c, err := train.Import(t.Context(), hub, imported, 16)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()

	own, learned := lossOn(t, talks.Train.Out, train.OpenOptions{})
	named, targets := lossOn(t, talks.Train.Out, train.OpenOptions{Data: validation})
	if own != want || named != want || learned != targets {
		t.Errorf("the run's own loss is %v (%d targets), with the file named %v (%d), in training it was %v", own, learned, named, targets, want)
	}
	for name, dir := range map[string]string{"a run of texts": imported, "a checkpoint of the hub": hub} {
		o := train.OpenOptions{Data: validation}
		if dir == hub {
			o.Context = 16
		}
		if loss, n := lossOn(t, dir, o); relative(loss, want) > 1e-6 || n != learned {
			t.Errorf("%s: the loss is %v over %d targets, want %v over %d", name, loss, n, want, learned)
		}
	}
}

// TestEvaluateOnTexts: a run that was trained on conversations is evaluated on a token file as one of texts is.
func TestEvaluateOnTexts(t *testing.T) {
	_, texts := testrun.Dataset(t)
	cfg := chatConfig(t, `quantizer.plugin="none"`, "method.form=\"off\"", `data.packing="none"`)
	testrun.Train(t, cfg, train.Options{})
	same := testrun.Config(t, append([]string{fmt.Sprintf("model.init=%q", cfg.Train.Out), "train.final_eval_batches=0", "model.context=16", "model.width=32", "model.heads=2", "model.hidden=48"}, still...)...)
	want := float64(*testrun.Train(t, same, train.Options{}).ValLoss)
	if loss, _ := lossOn(t, cfg.Train.Out, train.OpenOptions{Data: texts}); relative(loss, want) > 1e-6 {
		t.Errorf("the loss is %v, want %v", loss, want)
	}
}
