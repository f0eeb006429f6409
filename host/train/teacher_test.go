package train_test

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/internal/testrun"
	"github.com/cage-qat/cage/host/model/huggingface"
	"github.com/cage-qat/cage/host/train"
	"github.com/cage-qat/cage/host/train/checkpoint"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/internal/effort"
)

// initialTeacher is the override with which a run learns from the model that it starts from.
const initialTeacher = `train.distillation={teacher="initial"}`

// pretrained is a run in full precision, and the override to start from it.
func pretrained(t *testing.T, overrides ...string) (cfg *config.Config, init string) {
	t.Helper()
	cfg = testrun.Config(t, append([]string{`quantizer.plugin="none"`}, overrides...)...)
	testrun.Train(t, cfg, train.Options{})
	return cfg, fmt.Sprintf("model.init=%q", cfg.Train.Out)
}

// teacherOf is what a run says of its teacher.
func teacherOf(t *testing.T, run string) (teacher struct {
	Path, Run string
	Step      int
	Files     []huggingface.Part
}) {
	t.Helper()
	text, err := rundir.At(run).Provenance().ReadFile()
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &struct{ Teacher any }{&teacher}); err != nil {
		t.Fatal(err)
	}
	return teacher
}

// TestDistillation: a model in 4 bits learns what the model predicts that it starts from; the divergence falls. Stopped and
// resumed it is the same run, to the last bit, and its checkpoints hold nothing of the teacher. Records have the divergence
// and the cross-entropy, which are the loss; a run without a teacher has neither.
func TestDistillation(t *testing.T) {
	effort.Long(t, "trains a teacher")
	first, init := pretrained(t)
	whole := testrun.Elsewhere(t, first, init, initialTeacher, `quantizer.plugin="quest"`, "quantizer.bits=4", "train.accumulate=2", "train.clip=0.5")
	testrun.Train(t, whole, train.Options{})
	fell(t, whole.Train.Out)
	parts := testrun.Elsewhere(t, whole)
	runParts(t, parts, 7, 13)
	testrun.Train(t, testrun.Again(t, parts), train.Options{Resume: true})
	testrun.SameRun(t, "whole, and in three parts", whole.Train.Out, parts.Train.Out)
	for _, tensor := range testrun.Newest(t, whole.Train.Out).Tensors {
		if strings.Contains(tensor.Name, "teacher") {
			t.Errorf("the checkpoint has %s", tensor.Name)
		}
	}
	for _, r := range records(t, whole.Train.Out) {
		if r.Divergence == nil || r.CrossEntropy == nil || r.Loss != *r.Divergence || !(*r.CrossEntropy > 2 && *r.CrossEntropy < 6) {
			t.Errorf("step %d: loss %v, divergence %v, cross-entropy %v", r.Step, r.Loss, r.Divergence, r.CrossEntropy)
		}
	}
	if r := records(t, first.Train.Out)[0]; r.Divergence != nil || r.CrossEntropy != nil {
		t.Errorf("without a teacher: %+v", r)
	}
	made, from := teacherOf(t, whole.Train.Out), initialOf(t, whole.Train.Out)
	if made.Path != first.Train.Out || made.Run == "" || made.Step != 20 || !slices.Equal(made.Files, from.Files) || len(made.Files) != 1 {
		t.Errorf("the provenance says %+v", made)
	}
	// Its directory goes without the teacher, for what is not training.
	if err := os.RemoveAll(first.Train.Out); err != nil {
		t.Fatal(err)
	}
	if loss := evaluate(t, whole.Train.Out); !(loss > 2 && loss < 6) {
		t.Errorf("the validation loss is %v", loss)
	}
}

// TestDistillationMixes: of a mixed loss the records have the parts.
func TestDistillationMixes(t *testing.T) {
	first, init := pretrained(t)
	cfg := testrun.Elsewhere(t, first, init, `train.distillation={teacher="initial", weight=0.25, beta=0.3, temperature=2.0}`, `quantizer.plugin="mxfp4"`, "train.steps=3")
	testrun.Train(t, cfg, train.Options{})
	for _, r := range records(t, cfg.Train.Out) {
		if want := 0.25*float64(*r.Divergence) + 0.75*float64(*r.CrossEntropy); relative(float64(r.Loss), want) > 1e-12 {
			t.Errorf("step %d: the loss is %v, of divergence %v and cross-entropy %v", r.Step, r.Loss, *r.Divergence, *r.CrossEntropy)
		}
	}
}

// TestDistillationOfConversations: only what the assistant says counts. A model in full precision that starts as its
// teacher has nothing to learn from it, on rows of several documents and on documents of texts that are kept apart.
func TestDistillationOfConversations(t *testing.T) {
	effort.Long(t, "trains a teacher")
	plain := testrun.ChatConfig(t, `quantizer={plugin="none"}`, `method={form="off"}`)
	testrun.Train(t, plain, train.Options{})
	init := fmt.Sprintf("model.init=%q", plain.Train.Out)
	same := testrun.Elsewhere(t, plain, init, initialTeacher, "train.weight_decay=0.0")
	testrun.Train(t, same, train.Options{})
	for _, r := range records(t, same.Train.Out) {
		if *r.Divergence != 0 {
			t.Errorf("step %d: the divergence from itself is %v", r.Step, *r.Divergence)
		}
	}
	if a, b := evaluate(t, plain.Train.Out), evaluate(t, same.Train.Out); math.Float64bits(a) != math.Float64bits(b) {
		t.Errorf("the loss was %v and is %v", a, b)
	}
	for _, packing := range []string{"first_fit", "none"} {
		cfg := testrun.Elsewhere(t, plain, init, initialTeacher, `quantizer={plugin="nvfp4"}`, fmt.Sprintf("data.packing=%q", packing), `train.recompute="blocks"`)
		testrun.Train(t, cfg, train.Options{})
		parts := testrun.Elsewhere(t, cfg)
		runParts(t, parts, 5)
		testrun.Train(t, testrun.Again(t, parts), train.Options{Resume: true})
		testrun.SameRun(t, "whole, and in two parts", cfg.Train.Out, parts.Train.Out)
		if r := records(t, cfg.Train.Out)[0]; !(*r.Divergence > 0 && *r.Divergence < 0.2) {
			t.Errorf("%s: the first divergence is %v", packing, *r.Divergence)
		}
	}
	texts, start := pretrained(t, `data.documents="separate"`, "model.context=64", "train.steps=4")
	apart := testrun.Elsewhere(t, texts, start, initialTeacher)
	testrun.Train(t, apart, train.Options{})
	if r := records(t, apart.Train.Out)[0]; *r.Divergence != 0 {
		t.Errorf("of documents apart, the divergence from itself is %v", *r.Divergence)
	}
}

// TestTeacherOfItsOwn: the teacher can be a checkpoint of the hub, or a larger run of the same vocabulary, which need
// not be what the model starts from.
func TestTeacherOfItsOwn(t *testing.T) {
	hub := filepath.Join(t.TempDir(), "checkpoint")
	if err := os.CopyFS(hub, os.DirFS("../model/huggingface/testdata/llama32")); err != nil {
		t.Fatal(err)
	}
	cfg := testrun.Config(t, fmt.Sprintf("train.distillation={teacher=%q}", hub), "model.vocab=328", "train.steps=3")
	testrun.Train(t, cfg, train.Options{})
	if made := teacherOf(t, cfg.Train.Out); made.Path != hub || len(made.Files) != 2 || len(made.Files[0].SHA256) != 64 {
		t.Errorf("the provenance says %+v", made)
	}
	large := testrun.Config(t, "model.width=48", "model.layers=3", "train.steps=2", `quantizer.plugin="none"`)
	testrun.Train(t, large, train.Options{})
	small := testrun.Elsewhere(t, large, "model.width=32", "model.layers=1", "train.steps=25", "schedule.rate=0.01", fmt.Sprintf("train.distillation={teacher=%q}", large.Train.Out))
	testrun.Train(t, small, train.Options{})
	fell(t, small.Train.Out)
}

// TestInitialTeacherOfHub: a checkpoint of the hub is what a run starts from and learns from. Its files are in the
// provenance as both; the teacher that is read when the run goes on is the one that it began with, to the last bit.
func TestInitialTeacherOfHub(t *testing.T) {
	effort.Long(t, "trains a teacher")
	whole := testrun.Config(t, `model={init="../model/huggingface/testdata/llama32", context=16}`, initialTeacher, `quantizer={plugin="mxfp4"}`, "train.steps=6")
	testrun.Train(t, whole, train.Options{})
	parts := testrun.Elsewhere(t, whole)
	runParts(t, parts, 2)
	testrun.Train(t, testrun.Again(t, parts), train.Options{Resume: true})
	testrun.SameRun(t, "whole, and in two parts", whole.Train.Out, parts.Train.Out)
	for _, dir := range []string{whole.Train.Out, parts.Train.Out} {
		if made, from := teacherOf(t, dir), initialOf(t, dir); len(made.Files) != 2 || !slices.Equal(made.Files, from.Files) || made.Path != from.Path {
			t.Errorf("%s: the teacher is %+v, the weights are from %+v", dir, made, from)
		}
	}
}

// TestTeacherRefused: a run does not go on with other weights than those of its teacher, wherever these are now, and does
// not begin with a teacher that does not fit.
func TestTeacherRefused(t *testing.T) {
	first, init := pretrained(t, "train.checkpoint_every=10", "train.keep=5")
	cfg := testrun.Elsewhere(t, first, init, initialTeacher, `quantizer.plugin="quest"`)
	runParts(t, cfg, 5)
	before := testrun.Records(t, cfg.Train.Out)
	newest := rundir.At(first.Train.Out).Checkpoints().Join(checkpoint.FileName(20)).Name
	elsewhere := filepath.Join(t.TempDir(), "elsewhere")
	if err := os.CopyFS(elsewhere, os.DirFS(first.Train.Out)); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(newest); err != nil { // an older one is the newest now
		t.Fatal(err)
	}
	refused := func(what, say string, cfg *config.Config) {
		t.Helper()
		if _, err := train.Run(t.Context(), cfg, train.Options{Resume: true, Finder: testrun.Finder(t)}); err == nil || !strings.Contains(err.Error(), say) {
			t.Errorf("%s: error %v, want one that says %s", what, err, say)
		}
	}
	refused("an older checkpoint", "train.distillation.teacher: "+first.Train.Out+" holds other weights than those of the teacher that the run has", testrun.Again(t, cfg))
	refused("another weight", "train.distillation.weight was 1.0, is 0.5", testrun.Again(t, cfg, "train.distillation.weight=0.5"))
	if after := testrun.Records(t, cfg.Train.Out); !slices.Equal(before, after) {
		t.Errorf("the records changed from %v to %v", before, after)
	}
	moved := testrun.Again(t, cfg, fmt.Sprintf("train.distillation.teacher=%q", elsewhere))
	testrun.Train(t, moved, train.Options{Resume: true})
	if made := teacherOf(t, cfg.Train.Out); made.Path != elsewhere {
		t.Errorf("after it went on, the provenance says %+v", made)
	}
	if err := os.RemoveAll(elsewhere); err != nil {
		t.Fatal(err)
	}
	refused("it is gone", "train.distillation.teacher: "+elsewhere+" is neither a run directory nor", testrun.Again(t, moved))
	for _, c := range []struct{ what, say, teacher string }{
		{"another vocabulary", "has a vocabulary of 328, the model one of 256", "../model/huggingface/testdata/llama32"},
		{"nowhere", "train.distillation.teacher: nowhere is neither", "nowhere"},
	} {
		refused(c.what, c.say, testrun.Elsewhere(t, first, fmt.Sprintf("train.distillation={teacher=%q}", c.teacher)))
	}
}
