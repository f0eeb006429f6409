package quantize_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/cage-qat/cage/host/data/dataset"
	"github.com/cage-qat/cage/host/deploy/quantize"
	"github.com/cage-qat/cage/host/deploy/trained"
	"github.com/cage-qat/cage/host/testing/testrun"
	"github.com/cage-qat/cage/host/train"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/internal/testing/testlevel"
)

// TestGPTQOfConversations checks that a run of conversations is calibrated with its own training
// set, with separate documents and without counting padding, and that naming the same file gives
// the same errors.
func TestGPTQOfConversations(t *testing.T) {
	testlevel.Long(t, "trains on conversations and quantizes")
	cfg := testrun.ChatConfig(t, `quantizer.plugin="none"`, `method.form="off"`)
	testrun.Train(t, cfg, train.Options{})
	f, err := dataset.Open(cfg.Data.Train[0])
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	o := gptqOptions(t, "absmax", map[string]any{"bits": int64(3)})
	own := run(t, cfg.Train.Out, o)
	c := own.Calibration
	if c.Kind != config.KindChat || !c.Separate || c.Tokens != f.Header().Tokens ||
		c.SHA256 != f.SHA256() || c.Windows*c.Context <= int(c.Tokens) {
		t.Errorf("calibrated with %+v, want the %d tokens of %s", c, f.Header().Tokens, f.Path())
	}
	got, than := 0.0, 0.0
	for _, m := range own.Matrices {
		got, than = got+m.OutputError, than+m.RoundingError
	}
	if !(got < 0.8*than) {
		t.Errorf("the error is %v, that of rounding %v", got, than)
	}

	named := gptqOptions(t, "absmax", o.Params)
	named.Data = f.Path()
	again := run(t, cfg.Train.Out, named)
	for i, m := range own.Matrices {
		if *m.OutputErrors != *again.Matrices[i].OutputErrors {
			t.Errorf("%s: with the file named, the error is %v, without %v", m.Name,
				again.Matrices[i].OutputError, m.OutputError)
		}
	}
}

// TestGPTQKeepsDocumentsApart checks that calibration separates documents exactly if the run does.
func TestGPTQKeepsDocumentsApart(t *testing.T) {
	testlevel.Long(t, "quantizes several times")
	joined := testrun.Config(t, `quantizer.plugin="none"`, `method.form="off"`, "train.steps=2",
		"model.context=64")
	testrun.Train(t, joined, train.Options{})
	separate := testrun.Elsewhere(t, joined, `data.documents="separate"`,
		fmt.Sprintf("model.init=%q", joined.Train.Out), "schedule.rate=1e-30", "train.weight_decay=0")
	testrun.Train(t, separate, train.Options{}) // the same weights
	reports := map[bool]*trained.Posttrained{}
	for _, cfg := range []*config.Config{joined, separate} {
		o := gptqOptions(t, "absmax", nil)
		r := run(t, cfg.Train.Out, o)
		if r.Calibration.Separate != cfg.Data.Separate() ||
			r.Calibration.Tokens != int64(r.Calibration.Windows*64) {
			t.Errorf("calibrated with %+v", r.Calibration)
		}
		reports[cfg.Data.Separate()] = r
	}
	first, last := reports[true].Matrices[0], reports[true].Matrices[len(reports[true].Matrices)-1]
	if d := relative(first.RoundingError, reports[false].Matrices[0].RoundingError); d > 1e-6 {
		t.Errorf("the first layer's inputs, which no other token has been mixed with, differ by %v", d)
	}
	if d := relative(last.RoundingError,
		reports[false].Matrices[len(reports[false].Matrices)-1].RoundingError); d < 1e-4 {
		t.Errorf("the last layer's inputs differ by %v: documents see each other in both, or in none", d)
	}
}

// TestQuantizeHubWithValidation checks that a Hugging Face checkpoint, which has no data, is
// calibrated with conversations, and that the result gets a validation set.
func TestQuantizeHubWithValidation(t *testing.T) {
	testlevel.Long(t, "prepares data and trains")
	const hub = "../../model/huggingface/testdata/llama32"
	o := gptqOptions(t, "absmax", nil)
	o.Context = 32
	o.Data, o.Validation = testrun.HubConversations(t, hub, 1, 40),
		testrun.HubConversations(t, hub, 2, 21)
	run(t, hub, o)
	held, err := config.Load(rundir.At(o.Out).Config().Name, nil)
	if err != nil || held.Data.Kind != config.KindChat || held.Data.Validation != o.Validation {
		t.Errorf("the run has the validation set %q of kind %q, %v", held.Data.Validation, held.Data.Kind,
			err)
	}
	loss, _ := testrun.Loss(t, o.Out, trained.Options{})
	full, _ := testrun.Loss(t, hub, trained.Options{Data: o.Validation, Context: 32})
	if math.Abs(loss-full) > 0.5 || loss == full {
		t.Errorf("the loss is %v, in full precision %v", loss, full)
	}
	other := gptqOptions(t, "absmax", nil)
	other.Context, other.Data, other.Validation = 32, o.Data, testrun.Conversations(t, 3, 5)
	if _, err := quantize.Run(t.Context(), hub, other); err == nil ||
		err.Error() != other.Validation+" was made with the tokenizer bytes, but the model's is "+
			"llama32 (the sections model differ): prepare the text with the model's tokenizer (cage data "+
			"prepare --tokenizer)" {
		t.Errorf("a validation set in other tokens: %v", err)
	}
}
