package trained_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/cage-qat/cage/host/deploy/trained"
	"github.com/cage-qat/cage/host/internal/testrun"
	"github.com/cage-qat/cage/host/train"
	"github.com/cage-qat/cage/internal/effort"
)

// TestEvaluateOnConversations: on the same conversations the same weights have one loss, that over what is learned, whether a
// training on them computes it, or the file is named for that run, for a run that has known texts only, or for a checkpoint
// of the hub.
func TestEvaluateOnConversations(t *testing.T) {
	effort.Long(t, "trains and compiles four models")
	cfg, hub := testrun.FromHub(t, "model.context=16", "train.final_eval_batches=0")
	chat := testrun.HubConversations(t, hub, 1, 9)
	validation := testrun.HubConversations(t, hub, 2, 21)
	talks := testrun.Elsewhere(t, cfg, `data.kind="chat"`, fmt.Sprintf("data.train=%q", chat), fmt.Sprintf("data.validation=%q", validation))
	summary := testrun.Train(t, talks, train.Options{})
	want := float64(*summary.ValLoss)
	imported := filepath.Join(t.TempDir(), "imported")
	c, err := trained.Import(t.Context(), hub, imported, 16)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()

	own, learned := testrun.Loss(t, talks.Train.Out, trained.Options{})
	named, targets := testrun.Loss(t, talks.Train.Out, trained.Options{Data: validation})
	if own != want || named != want || learned != targets {
		t.Errorf("the run's own loss is %v (%d targets), with the file named %v (%d), in training it was %v", own, learned, named, targets, want)
	}
	for name, dir := range map[string]string{"a run of texts": imported, "a checkpoint of the hub": hub} {
		o := trained.Options{Data: validation}
		if dir == hub {
			o.Context = 16
		}
		if loss, n := testrun.Loss(t, dir, o); relative(loss, want) > 1e-6 || n != learned {
			t.Errorf("%s: the loss is %v over %d targets, want %v over %d", name, loss, n, want, learned)
		}
	}
}

// TestEvaluateOnTexts: a run that was trained on conversations is evaluated on a token file as one of texts is.
func TestEvaluateOnTexts(t *testing.T) {
	_, texts := testrun.Dataset(t)
	cfg := testrun.ChatConfig(t, `quantizer.plugin="none"`, "method.form=\"off\"", `data.packing="none"`)
	testrun.Train(t, cfg, train.Options{})
	same := testrun.Config(t, append([]string{fmt.Sprintf("model.init=%q", cfg.Train.Out), "train.final_eval_batches=0", "model.context=16", testrun.TwoLayers, "model.width=32", "model.heads=2", "model.hidden=48"}, testrun.Still...)...)
	want := float64(*testrun.Train(t, same, train.Options{}).ValLoss)
	if loss, _ := testrun.Loss(t, cfg.Train.Out, trained.Options{Data: texts}); relative(loss, want) > 1e-6 {
		t.Errorf("the loss is %v, want %v", loss, want)
	}
}
