package train_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/host/model/huggingface"
	"github.com/cage-qat/cage/host/model/safetensors"
	"github.com/cage-qat/cage/host/testing/testhub"
	"github.com/cage-qat/cage/host/testing/testrun"
	"github.com/cage-qat/cage/host/train"
	"github.com/cage-qat/cage/host/train/checkpoint"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/internal/plaintoml"
	"github.com/cage-qat/cage/internal/testing/testlevel"
	"github.com/cage-qat/cage/internal/vfs"
)

// TestFromHub checks that a run starts with the weights of the checkpoint, records them in its
// provenance, and no longer needs it.
func TestFromHub(t *testing.T) {
	for _, pairs := range []string{"interleaved", "half"} {
		cfg, dir := testrun.FromHub(t, fmt.Sprintf("model.rope_pairs=%q", pairs), "train.steps=2")
		if _, err := train.Run(t.Context(), cfg,
			train.Options{Finder: testrun.Finder(t), StopAfter: 1}); err == nil {
			t.Fatal("the run did not stop")
		}
		c, err := huggingface.Open(vfs.At(dir), huggingface.Options{Pairs: cfg.Model.RopePairs})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		got := testrun.Values(t, testrun.Newest(t, cfg.Train.Out))
		for _, p := range c.Params() {
			want, err := c.Values(p.Name)
			if err != nil || !slices.Equal(got["param/"+p.Name], want) {
				t.Errorf("%s: parameter %s is not that of the checkpoint, error %v", pairs, p.Name, err)
			}
		}
		parts, err := c.Parts()
		if initial := madeOf(t, cfg.Train.Out).Initial; err != nil || initial.Path != dir ||
			!slices.Equal(initial.Files, parts) {
			t.Errorf("%s: the provenance says %+v", pairs, initial)
		}
		// run.toml has all sizes: without the checkpoint, the run can be resumed and evaluated.
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		resolved, err := config.Load(rundir.At(cfg.Train.Out).Config().Name, nil)
		if err != nil {
			t.Fatal(err)
		}
		testrun.Train(t, resolved, train.Options{Resume: true})
		if initial := madeOf(t, cfg.Train.Out).Initial; !slices.Equal(initial.Files, parts) {
			t.Errorf("%s: after it went on, the provenance says %+v", pairs, initial)
		}
		evaluate(t, cfg.Train.Out)
	}
}

// TestNewTokens checks that new tokens have their own rows in the embedding and in the head,
// initialized with the mean of the others or with one row, and that all other weights are those of
// the checkpoint.
func TestNewTokens(t *testing.T) {
	testlevel.Long(t, "trains twice")
	// with a tied head, and with a separate one
	for hub, n := range map[string]int{"llama32": 2, "olmo2": 256} {
		for _, from := range []int{-1, 3} {
			dir := filepath.Join("../model/huggingface/testdata", hub)
			overrides := append([]string{fmt.Sprintf("model.init=%q", dir),
				fmt.Sprintf("model.new_tokens=%d", n), testrun.OtherTokens}, testrun.Still...)
			if from >= 0 {
				overrides = append(overrides, fmt.Sprintf("model.new_rows_from=%d", from))
			}
			text := testrun.ConfigText("train.tokens", "val.tokens", filepath.Join(t.TempDir(), "run"))
			trainFile, validation := testrun.Dataset(t)
			text = strings.NewReplacer("train.tokens", trainFile, "val.tokens", validation).Replace(text)
			for _, key := range []string{"layers", "width", "heads", "hidden"} {
				text = regexp.MustCompile(`(?m)\b`+key+` = \d+,?`).ReplaceAllString(text, "")
			}
			cfg := testrun.Parse(t, text, overrides...)
			testrun.Train(t, cfg, train.Options{})
			c, err := huggingface.Open(vfs.At(dir), huggingface.Options{Pairs: cfg.Model.RopePairs})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			got := testrun.Values(t, testrun.Newest(t, cfg.Train.Out))
			for _, p := range c.Params() {
				want, err := c.Values(p.Name)
				if err != nil {
					t.Fatal(err)
				}
				want = slices.Clone(want)
				if p.Name == "embedding" || p.Name == "head" {
					rows, width := p.Dims[0], p.Dims[1]
					row := make([]float32, width)
					for i := range row {
						sum := 0.0
						for r := range rows {
							sum += float64(want[r*width+i])
						}
						row[i] = float32(sum / float64(rows))
					}
					if from >= 0 {
						row = slices.Clone(want[from*width : (from+1)*width])
					}
					want = append(want, slices.Repeat(row, n)...)
				}
				if !slices.Equal(got["param/"+p.Name], want) {
					t.Errorf("%s, from %d: parameter %s is not that of the checkpoint with new rows", hub, from,
						p.Name)
				}
			}
			evaluate(t, cfg.Train.Out)
		}
	}
}

// TestWarmStart checks that a model that starts from another run has the same bits in its
// evaluation.
func TestWarmStart(t *testing.T) {
	first := testrun.Config(t, `quantizer.plugin="none"`)
	testrun.Train(t, first, train.Options{})
	init := fmt.Sprintf("model.init=%q", first.Train.Out)
	warm := testrun.Elsewhere(t, first, append([]string{init}, testrun.Still...)...)
	testrun.Train(t, warm, train.Options{})
	if a, b := evaluate(t, first.Train.Out), evaluate(t, warm.Train.Out); math.Float64bits(
		a) != math.Float64bits(b) {
		t.Errorf("the loss is %v, of the run that it starts from %v", b, a)
	}
	initial := madeOf(t, warm.Train.Out).Initial
	if initial.Path != first.Train.Out || initial.Step != first.Train.Steps || initial.Run == "" ||
		len(initial.Files) != 1 || len(initial.Files[0].SHA256) != 64 {
		t.Errorf("the provenance says %+v", initial)
	}
	// The usual start of quantization-aware training.
	summary := testrun.Train(t, testrun.Elsewhere(t, first, init, `quantizer.plugin="quest"`,
		"quantizer.bits=4"), train.Options{})
	if !summary.Completed {
		t.Errorf("summary %+v", summary)
	}
}

// TestInitChanged checks that a run that starts again does so only with the same initial weights.
func TestInitChanged(t *testing.T) {
	first, init := pretrained(t, "train.steps=4", "train.checkpoint_every=2", "train.keep=5")
	newest := rundir.At(first.Train.Out).Checkpoints().Join(checkpoint.FileName(4)).Name
	hidden := filepath.Join(t.TempDir(), "hidden")
	if err := os.Rename(newest, hidden); err != nil {
		t.Fatal(err)
	}
	cfg := testrun.Elsewhere(t, first, append([]string{init}, testrun.Still...)...)
	testrun.Train(t, cfg, train.Options{})
	if err := os.Rename(hidden, newest); err != nil { // as if the initial run had continued
		t.Fatal(err)
	}
	dir := rundir.At(cfg.Train.Out)
	if err := errors.Join(os.RemoveAll(dir.Checkpoints().Name), dir.Summary().Remove()); err != nil {
		t.Fatal(err)
	}
	_, err := train.Run(t.Context(), testrun.Again(t, cfg),
		train.Options{Resume: true, Finder: testrun.Finder(t)})
	e, ok := errors.AsType[*plaintoml.Error](err)
	if !ok || e.Key != "model.init" ||
		!strings.Contains(e.Msg,
			"step 4) are not those that the run started from ("+first.Train.Out+", step 2)") {
		t.Errorf("error %v, want one that names both weights", err)
	}
	if err := os.Remove(newest); err != nil {
		t.Fatal(err)
	}
	testrun.Train(t, testrun.Again(t, cfg), train.Options{Resume: true})
	if initial := madeOf(t, cfg.Train.Out).Initial; initial.Step != 2 {
		t.Errorf("with its weights at hand, the provenance says %+v", initial)
	}
}

// TestInitRefused checks that a run does not start with initial weights that do not fit.
func TestInitRefused(t *testing.T) {
	damaged, dir := testrun.FromHub(t)
	c, err := huggingface.Open(vfs.At(dir), huggingface.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	wild := func(name string) ([]float32, error) {
		values, err := c.Values(name)
		if name == "norm" || name == "layers.1.mlp.down" {
			values[3] = float32(math.NaN())
		}
		return values, err
	}
	copied := filepath.Join(t.TempDir(), "wild")
	testhub.Write(t, copied, c.Config, safetensors.BF16, 0, wild)
	gone, place := testrun.FromHub(t)
	if err := os.RemoveAll(place); err != nil {
		t.Fatal(err)
	}
	unsaved := testrun.Config(t, "model.vocab=256")
	if err := os.MkdirAll(unsaved.Train.Out, 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, rundir.At(unsaved.Train.Out).Config().Name, testrun.Again(t, unsaved).Encode())
	for name, test := range map[string]struct {
		cfg *config.Config
		say []string
	}{
		"values that are not finite": {testrun.Again(t, damaged, fmt.Sprintf("model.init=%q", copied)),
			[]string{"model.init: " + copied,
				"tensor model.layers.1.mlp.down_proj.weight: 1 of 6144 values are NaN or infinite",
				"tensor model.norm.weight: 1 of 64 values"}},
		"no directory": {gone,
			[]string{"model.init: " + place + " is neither a run directory nor a Hugging Face checkpoint"}},
		"another model": {
			testrun.Again(t, damaged, `model.init="../model/huggingface/testdata/olmo2"`),
			[]string{"model.kind: found the string \"llama\", but",
				"model.vocab: found the integer 328, but"}},
		"a run without provenance": {
			testrun.Elsewhere(t, unsaved, fmt.Sprintf("model.init=%q", unsaved.Train.Out)),
			[]string{"model.init: the provenance of the run cannot be read"}},
	} {
		_, err := train.Run(t.Context(), test.cfg, train.Options{Finder: testrun.Finder(t)})
		for _, say := range test.say {
			if err == nil || !strings.Contains(err.Error(), say) {
				t.Errorf("%s: error\n%v\ndoes not say %s", name, err, say)
			}
		}
		if there, err := rundir.At(test.cfg.Train.Out).Config().Exists(); there || err != nil {
			t.Errorf("%s: a run was begun, error %v", name, err)
		}
	}
}

// TestOtherTokens checks that a run is refused if the tokenizer of its data is not that of the
// model that it starts or learns from, unless this is allowed.
func TestOtherTokens(t *testing.T) {
	const hub = "../model/huggingface/testdata/llama32"
	own, _ := pretrained(t, "train.steps=1") // its tokens are bytes
	fromRun := fmt.Sprintf("model={init=%q, context=16}", own.Train.Out)
	fromHub := fmt.Sprintf("model={init=%q, context=16}", hub)
	// Both tokenizers have the same name and size.
	renamed := tokenizer.Bytes{}.Info()
	renamed.SHA256 = strings.Repeat("0", 64)
	other := testrun.ChatFile(t, renamed, func(yield func([]int32, []bool) bool) {
		for range 8 {
			yield([]int32{1, 2, 3}, []bool{false, true, true})
		}
	})
	chat := fmt.Sprintf(`data={kind="chat", train=%q, validation=%q}`, other, other)
	own256 := `model={vocab=256, layers=1, width=32, heads=2, context=16}`
	for name, c := range map[string]struct {
		want      string
		overrides []string
	}{
		"bytes for a checkpoint": {"model.init: .* bytes, but the model's is llama32 " +
			".*data.tokenizer_mismatch = \"allow\" disables this check", []string{fromHub}},
		"conversations for a run": {`model.init: .* bytes \(00000000\), but the model's is bytes \(`,
			[]string{fromRun, chat}},
		"conversations for a teacher": {
			`train.distillation.teacher: .* bytes \(00000000\), but the model's is bytes \(`,
			[]string{own256, chat, fmt.Sprintf("train.distillation={teacher=%q}", own.Train.Out)}},
		"allowed":                   {"", []string{fromHub, testrun.OtherTokens}},
		"allowed for conversations": {"", []string{fromRun, chat, `data.tokenizer_mismatch="allow"`}},
		"the same for a run":        {"", []string{fromRun}},
		"the same for a teacher": {"",
			[]string{own256, fmt.Sprintf("train.distillation={teacher=%q}", own.Train.Out)}},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := testrun.Config(t, append(c.overrides, `quantizer.plugin="none"`, "train.steps=1")...)
			_, err := train.Run(t.Context(), cfg, train.Options{Finder: testrun.Finder(t)})
			if c.want == "" && err != nil || c.want != "" &&
				(err == nil || !regexp.MustCompile(c.want).MatchString(err.Error())) {
				t.Errorf("error %v, want %q", err, c.want)
			}
			if there, err := rundir.At(cfg.Train.Out).Config().Exists(); there != (c.want == "") ||
				err != nil {
				t.Errorf("a run was begun: %t, error %v", there, err)
			}
			if c.want != "" {
				return
			}
			if made := madeOf(t, cfg.Train.Out); made.Tokenizer.Name != "bytes" {
				t.Errorf("the run has the tokenizer %+v", made.Tokenizer)
			}
		})
	}
}

// initialTeacher is the setting with which a run learns from its initial model.
const initialTeacher = `train.distillation={teacher="initial"}`

// pretrained trains a model in full precision, and returns the setting to start from it.
func pretrained(t *testing.T, overrides ...string) (cfg *config.Config, init string) {
	t.Helper()
	cfg = testrun.Config(t, append([]string{`quantizer.plugin="none"`}, overrides...)...)
	testrun.Train(t, cfg, train.Options{})
	return cfg, fmt.Sprintf("model.init=%q", cfg.Train.Out)
}

// TestDistillation checks that a 4-bit model learns the predictions of its initial model: the
// divergence falls. A resumed run gives the same bits, and checkpoints contain nothing of the
// teacher. Records have the divergence, which is the loss, and the cross-entropy; without a teacher
// they have neither.
func TestDistillation(t *testing.T) {
	testlevel.Long(t, "trains a teacher")
	first, init := pretrained(t)
	whole := testrun.Elsewhere(t, first, init, initialTeacher, `quantizer.plugin="quest"`,
		"quantizer.bits=4", "train.accumulate=2", "train.clip=0.5")
	testrun.Train(t, whole, train.Options{})
	fell(t, whole.Train.Out)
	inParts(t, whole, 7, 13)
	for _, tensor := range testrun.Newest(t, whole.Train.Out).Tensors {
		if strings.Contains(tensor.Name, "teacher") {
			t.Errorf("the checkpoint has %s", tensor.Name)
		}
	}
	for _, r := range records(t, whole.Train.Out) {
		if r.Divergence == nil || r.CrossEntropy == nil || r.Loss != *r.Divergence ||
			!(*r.CrossEntropy > 2 && *r.CrossEntropy < 6) {
			t.Errorf("step %d: loss %v, divergence %v, cross-entropy %v", r.Step, r.Loss, r.Divergence,
				r.CrossEntropy)
		}
	}
	if r := records(t, first.Train.Out)[0]; r.Divergence != nil || r.CrossEntropy != nil {
		t.Errorf("without a teacher: %+v", r)
	}
	made, from := madeOf(t, whole.Train.Out).Teacher, madeOf(t, whole.Train.Out).Initial
	if made.Path != first.Train.Out || made.Run == "" || made.Step != 20 ||
		!slices.Equal(made.Files, from.Files) || len(made.Files) != 1 {
		t.Errorf("the provenance says %+v", made)
	}
	// The run can be evaluated without its teacher.
	if err := os.RemoveAll(first.Train.Out); err != nil {
		t.Fatal(err)
	}
	if loss := evaluate(t, whole.Train.Out); !(loss > 2 && loss < 6) {
		t.Errorf("the validation loss is %v", loss)
	}
}

// TestDistillationMixes checks that records have the parts of a mixed loss, and that a new run does
// not read its initial weights a second time for the teacher.
func TestDistillationMixes(t *testing.T) {
	first, init := pretrained(t)
	cfg := testrun.Elsewhere(t, first, init,
		`train.distillation={teacher="initial", weight=0.25, beta=0.3, temperature=2.0}`,
		`quantizer.plugin="mxfp4"`, "train.steps=3")
	var log bytes.Buffer
	testrun.Train(t, cfg, train.Options{Logger: hclog.New(&hclog.LoggerOptions{Output: &log})})
	if strings.Contains(log.String(), "learning from a teacher") {
		t.Errorf("the teacher was read from a file:\n%s", log.String())
	}
	for _, r := range records(t, cfg.Train.Out) {
		if want := 0.25*float64(*r.Divergence) + 0.75*float64(*r.CrossEntropy); relative(float64(r.Loss),
			want) > 1e-12 {
			t.Errorf("step %d: the loss is %v, of divergence %v and cross-entropy %v", r.Step, r.Loss,
				*r.Divergence, *r.CrossEntropy)
		}
	}
}

// TestDistillationOfConversations checks that only the targets count: a model in full precision
// that starts as its teacher has no divergence from it, with several documents in a row and with
// separate documents of texts.
func TestDistillationOfConversations(t *testing.T) {
	testlevel.Long(t, "trains a teacher")
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
	if a, b := evaluate(t, plain.Train.Out), evaluate(t, same.Train.Out); math.Float64bits(
		a) != math.Float64bits(b) {
		t.Errorf("the loss was %v and is %v", a, b)
	}
	for _, packing := range []string{"first_fit", "none"} {
		cfg := testrun.Elsewhere(t, plain, init, initialTeacher, `quantizer={plugin="nvfp4"}`,
			fmt.Sprintf("data.packing=%q", packing), `train.recompute="blocks"`)
		testrun.Train(t, cfg, train.Options{})
		inParts(t, cfg, 5)
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

// TestTeacherOfItsOwn checks that the teacher can be a Hugging Face checkpoint or a larger run with
// the same vocabulary, and need not be the initial model.
func TestTeacherOfItsOwn(t *testing.T) {
	testlevel.Long(t, "trains twice")
	hub := filepath.Join(t.TempDir(), "checkpoint")
	if err := os.CopyFS(hub, os.DirFS("../model/huggingface/testdata/llama32")); err != nil {
		t.Fatal(err)
	}
	cfg := testrun.Config(t, fmt.Sprintf("train.distillation={teacher=%q}", hub), testrun.OtherTokens,
		"model.vocab=328", "train.steps=3")
	testrun.Train(t, cfg, train.Options{})
	if made := madeOf(t, cfg.Train.Out).Teacher; made.Path != hub || len(made.Files) != 2 ||
		len(made.Files[0].SHA256) != 64 {
		t.Errorf("the provenance says %+v", made)
	}
	large := testrun.Config(t, "model.width=48", "model.layers=3", "train.steps=2",
		`quantizer.plugin="none"`)
	testrun.Train(t, large, train.Options{})
	small := testrun.Elsewhere(t, large, "model.width=32", "model.layers=1", "train.steps=25",
		"schedule.rate=0.01", fmt.Sprintf("train.distillation={teacher=%q}", large.Train.Out))
	testrun.Train(t, small, train.Options{})
	fell(t, small.Train.Out)
}

// TestInitialTeacherOfHub checks a run that starts and learns from a Hugging Face checkpoint. The
// provenance has its files as both. A resumed run, which reads the teacher again, gives the same
// bits.
func TestInitialTeacherOfHub(t *testing.T) {
	testlevel.Long(t, "trains a teacher")
	whole := testrun.Config(t, `model={init="../model/huggingface/testdata/llama32", context=16}`,
		testrun.OtherTokens, initialTeacher, `quantizer={plugin="mxfp4"}`, "train.steps=6")
	testrun.Train(t, whole, train.Options{})
	parts := inParts(t, whole, 2)
	for _, dir := range []string{whole.Train.Out, parts.Train.Out} {
		if made, from := madeOf(t, dir).Teacher, madeOf(t, dir).Initial; len(made.Files) != 2 ||
			!slices.Equal(made.Files, from.Files) || made.Path != from.Path {
			t.Errorf("%s: the teacher is %+v, the weights are from %+v", dir, made, from)
		}
	}
}

// TestTeacherRefused checks that a run continues only with the weights of its teacher, which may
// have moved, and does not start with a teacher that does not fit.
func TestTeacherRefused(t *testing.T) {
	testlevel.Long(t, "trains several times")
	first, init := pretrained(t, "train.checkpoint_every=10", "train.keep=5")
	cfg := testrun.Elsewhere(t, first, init, initialTeacher, `quantizer.plugin="quest"`)
	runParts(t, cfg, 5)
	before := testrun.Records(t, cfg.Train.Out)
	newest := rundir.At(first.Train.Out).Checkpoints().Join(checkpoint.FileName(20)).Name
	elsewhere := filepath.Join(t.TempDir(), "elsewhere")
	if err := os.CopyFS(elsewhere, os.DirFS(first.Train.Out)); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(newest); err != nil { // now an older one is the newest
		t.Fatal(err)
	}
	refused := func(what, say string, cfg *config.Config) {
		t.Helper()
		if _, err := train.Run(t.Context(), cfg,
			train.Options{Resume: true, Finder: testrun.Finder(t)}); err == nil ||
			!strings.Contains(err.Error(), say) {
			t.Errorf("%s: error %v, want one that says %s", what, err, say)
		}
	}
	refused("an older checkpoint",
		"train.distillation.teacher: "+first.Train.Out+" does not contain the weights of the run's "+
			"teacher", testrun.Again(t, cfg))
	refused("another weight", "train.distillation.weight was 1.0, is 0.5",
		testrun.Again(t, cfg, "train.distillation.weight=0.5"))
	if after := testrun.Records(t, cfg.Train.Out); !slices.Equal(before, after) {
		t.Errorf("the records changed from %v to %v", before, after)
	}
	moved := testrun.Again(t, cfg, fmt.Sprintf("train.distillation.teacher=%q", elsewhere))
	testrun.Train(t, moved, train.Options{Resume: true})
	if made := madeOf(t, cfg.Train.Out).Teacher; made.Path != elsewhere {
		t.Errorf("after it went on, the provenance says %+v", made)
	}
	if err := os.RemoveAll(elsewhere); err != nil {
		t.Fatal(err)
	}
	refused("it is gone", "train.distillation.teacher: "+elsewhere+" is neither a run directory nor",
		testrun.Again(t, moved))
	for _, c := range []struct{ what, say, teacher string }{
		{"another vocabulary", "has a vocabulary of 328, want 256 as in the model",
			"../model/huggingface/testdata/llama32"},
		{"nowhere", "train.distillation.teacher: nowhere is neither", "nowhere"},
	} {
		refused(c.what, c.say,
			testrun.Elsewhere(t, first, fmt.Sprintf("train.distillation={teacher=%q}", c.teacher)))
	}
}
