package study_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/study"
)

// own is a study of a model that a reader replaces.
const own = `
[base]
model = {init = %q, context = 16}
data = {train = %q, validation = "v.tokens"}
train = {steps = %d, batch = 2}
schedule = {rate = 3e-3}
optimizer = {plugin = "adamw"}
[study]
name = "own"
[[study.axes]]
name = "method"
values = [
  {label = "GPTQ", set = {quantizer.weights = {plugin = "absmax"}}, quantize = {method = "gptq", of = "init"%s}},
  {label = "QAT", set = {quantizer.weights = {plugin = "absmax"}}},
]
[[study.axes]]
name = "rate"
key = "schedule.rate"
values = [1e-3]
[[study.evaluations]]
reference = %q
`

// TestOverride checks that overrides of the base make the cells that the edited file has, and that
// the model that is compared with, and the texts for GPTQ, are by default those of the base.
func TestOverride(t *testing.T) {
	model, err := filepath.Abs("../model/huggingface/testdata/llama32")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	write(t, "edited.toml", fmt.Sprintf(own, model, "mine", 5, `, data = "mine"`, model))
	write(t, "own.toml", fmt.Sprintf(own, "absent", "t.tokens", 1, "", "init"))
	edited := load(t, "edited.toml")
	set, err := study.Load("own.toml", fmt.Sprintf("model.init=%q", model), `data.train="mine"`,
		"train.steps=5")
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range set.Cells {
		if other := edited.Cells[i]; c.ID != other.ID {
			t.Errorf("the cell is %s, that of the edited file %s", c.ID, other.ID)
		}
	}
	if a, b := study.EvaluationIDs(set), study.EvaluationIDs(edited); len(a) != 1 || a[0] != b[0] {
		t.Errorf("the evaluations are %v, those of the edited file %v", a, b)
	}
	for override, want := range map[string]string{
		"schedule.rate=1": `--set schedule.rate=1: schedule.rate: the axis "rate" sets it in every cell`,
		"train.step=1":    "did you mean train.steps?",
		"train.steps":     "want KEY=VALUE",
		`model={kind="llama", layers=1, width=32, heads=2, vocab=64}`: "model.init is missing in base",
	} {
		_, err := study.Load("own.toml", override)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", override, err, want)
		}
	}
}
