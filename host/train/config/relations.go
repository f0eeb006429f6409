package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cage-qat/cage/host/cage"
	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/internal/plaintoml"
	"github.com/cage-qat/cage/internal/schema"
)

// relations checks constraints between keys, and sets values that depend on other keys. A check is
// skipped if one of its keys already has a problem.
func (d *decoder) relations() {
	d.foreignKeys()
	// A method needs quantized weights. Untrained runs are exempt: cage quantize once wrote methods.
	if !d.cfg.untrained && d.cfg.Method.Name != cage.NameCAGE && d.cfg.Method.Name != cage.NameOff &&
		!d.cfg.Quantizer.quantizesWeights() && d.Good("method", "method.name") && !d.Bad("quantizer") {
		d.Report("method.name", fmt.Sprintf("found the string %q, but no weight is quantized", d.cfg.Method.Name),
			"want a [quantizer.weights], with which the run is evaluated")
	}
	if d.Good("model.kind") {
		d.problems(d.cfg.Model.Check())
	}
	if d.cfg.untrained {
		for _, name := range []string{"data", "schedule", distillationTable} {
			if d.raw(name) != nil && d.cfg.trains(name) {
				d.Report(d.Placed(name), "found with train.steps = 0, with which nothing is trained", "leave it out, or give steps")
			}
		}
	} else if p, found := d.cfg.Schedule.Problem(d.cfg.Train.Steps); found {
		d.problems(schema.Problems{p})
	}
	d.problems(d.cfg.Train.averageProblems())
	d.problems(d.cfg.Method.Check())
	d.problems(d.cfg.Device.check(d.cfg.Train.Batch))
	mixture := len(d.cfg.Data.Mixture) > 0
	switch {
	case !d.cfg.Model.Language() || d.cfg.untrained || !d.Good("data", "data.train", "data.mixture", "model", "model.kind"):
	case mixture && d.Given("data.train"):
		d.Report("data.mixture", "found beside data.train", "want one of them")
	case !mixture && !d.Given("data.train"):
		t := table{name: "data", keys: d.cfg.Data.keys()}
		d.reportMissing(t, *t.key("train"))
	}
	d.conversations()
	d.overrides()
	d.distillation()
	if n := d.cfg.Device.Count; len(d.cfg.Train.Samples) > 0 && n > 1 && d.Good("train.samples", "device.count") {
		d.Report("train.samples", fmt.Sprintf("found with device.count = %d, where none are written yet", n),
			"leave the key out: `cage generate` continues texts with a checkpoint")
	}
	d.cfg.Model.FillIn()
	if d.cfg.NewTokens > 0 && d.cfg.Init == "" && d.Good(newTokensKey, initKey) {
		d.Report(newTokensKey, "found without "+initKey, "leave it out: the rows of all tokens are drawn")
	}
	if d.cfg.NewRowsFrom != nil && d.cfg.NewTokens == 0 && d.Good(newRowsKey, newTokensKey) {
		d.Report(newRowsKey, "found without "+newTokensKey, "leave it out, or say how many new tokens there are")
	}
	if d.initial != nil {
		d.problems(d.initial.problems(d.cfg))
	}
	if !d.cfg.Model.Language() {
		d.cfg.Train.Batch = 1
	}
}

func (d *decoder) conversations() {
	if !d.Good("data", "data.kind", "model", "model.kind") {
		return
	}
	chat := d.cfg.Model.Language() && d.cfg.Data.Kind == KindChat
	data := d.cfg.Data
	for _, k := range []struct {
		key   string
		other bool // the key has a value that only the other kind of data allows
	}{
		{"data.packing", !chat && data.Packing != defaultPacking}, {"data.epochs", !chat && data.Epochs != 1},
		{"data.documents", chat && data.Documents != documentsJoined}, {"data.mixture", chat && len(data.Mixture) > 0},
	} {
		if k.other && d.Given(k.key) && d.Good(k.key) {
			d.Report(k.key, fmt.Sprintf("found with data.kind = %q", data.Kind), "leave the key out")
		}
	}
	if chat && len(d.cfg.Data.Train) > 1 && d.Good("data.train") {
		d.Report("data.train", fmt.Sprintf("found %d files with data.kind = %q", len(d.cfg.Data.Train), KindChat), "want one file")
	}
}

// overrides checks the blocks and steps of overrides, and replaces negative block indices.
func (d *decoder) overrides() {
	q := &d.cfg.Quantizer
	for i := range q.Overrides {
		o := &q.Overrides[i]
		if key := plaintoml.JoinKey(o.Table, "layers"); d.Good(key, "model", "model.kind", "model.layers", "model.preset", initKey) {
			have := d.cfg.Model.Layers
			for i, layer := range o.Layers {
				if layer < 0 {
					layer += have
				}
				if layer < 0 || layer >= have {
					hint := fmt.Sprintf("want 0 to %d, or -1 for the last one to -%d", have-1, have)
					if have == 0 {
						hint = "leave it out"
					}
					d.Report(key, fmt.Sprintf("found %d, but the model has %d transformer blocks", o.Layers[i], have), hint)
					break
				}
				o.Layers[i] = layer
			}
		}
	}
	if d.Good("train", "train.steps") {
		d.problems(q.steps(d.cfg.Train.Steps))
	}
}

// steps reports overrides without effect at any step of a run. steps is 0 while it is unknown.
func (q *Quantizer) steps(steps int) (out schema.Problems) {
	for _, o := range q.Overrides {
		from, to := plaintoml.JoinKey(o.Table, "from"), plaintoml.JoinKey(o.Table, "to")
		out.Unless(o.To == 0 || o.From <= o.To, schema.Problem{Key: to, With: []string{from},
			Found: fmt.Sprintf("the integer %d with from = %d", o.To, o.From), Hint: "want at least from, or 0 for the last step of the run"})
		out.Unless(steps == 0 || o.From <= steps, schema.Problem{Key: from,
			Found: fmt.Sprintf("the integer %d with train.steps = %d", o.From, steps), Hint: "want a step of the run"})
	}
	return out
}

// distillation reports a missing teacher if the table of distillation is present.
func (d *decoder) distillation() {
	if !d.Good("train", distillationTable, teacherKey, "model", "model.kind") || !d.cfg.Model.Language() {
		return
	}
	if d.raw(distillationTable) == nil {
		return
	}
	t := d.cfg.Train.Distillation.table()
	if !d.Given(teacherKey) {
		d.reportMissing(t, *t.key("teacher"))
	} else if d.cfg.Train.Distillation.Teacher == TeacherInitial && d.cfg.Init == "" && d.Good(initKey) {
		d.Report(teacherKey, `found "initial" without model.init`, "want weights in model.init, which the model starts from, or the directory of a teacher")
	}
}

func (d *decoder) problems(list schema.Problems) {
	for _, p := range list {
		if d.Good(p.Key) && d.Good(p.With...) {
			d.Report(p.Key, "found "+p.Found, p.Hint)
		}
	}
}

// foreignKeys reports the keys and tables that belong to other kinds of models than the configured
// one, and the keys of other methods.
func (d *decoder) foreignKeys() {
	for _, t := range d.schema {
		selector, value := t.selector(d.cfg)
		if !d.Good(selector, plaintoml.ParentKey(selector)) {
			continue
		}
		if t.models != nil && !slices.Contains(t.models, value) {
			if d.raw(t.name) != nil && d.Good(plaintoml.ParentKey(t.name)) {
				d.foreign(d.Placed(t.name), "a table", "leave it out", selector, value, t.models)
			}
			continue
		}
		leave := "leave it out"
		if t.name == "method" {
			leave = "leave the key out"
		}
		for _, k := range t.keys {
			if t.plugin == nil && d.Given(t.path(k.Name)) && !k.Belongs(value) {
				d.foreign(t.path(k.Name), "a key", leave, selector, value, k.For)
			}
		}
	}
}

// foreign reports a key or table that belongs to the owners; it replaces all other reports about
// the key.
func (d *decoder) foreign(key, what, leave, selector, value string, owners []string) {
	d.Errs = slices.DeleteFunc(d.Errs, func(e *plaintoml.Error) bool { return e.Key == key || strings.HasPrefix(e.Key, key+".") })
	theirs := selector + " = " + strings.ReplaceAll(schema.Quoted(owners), ", ", " or ")
	d.Report(key, fmt.Sprintf("%s of %s, found with %s = %q", what, theirs, selector, value), leave+", or set "+theirs)
}

// check reports settings that the CPU lacks, and micro-batches that replicas cannot divide evenly.
func (d Device) check(batch int) (out schema.Problems) {
	onCPU := func(key, value, only string) {
		out.Unless(value == only || d.Kind == device.CUDA, schema.Problem{Key: key, With: []string{"device.kind"},
			Found: fmt.Sprintf("the string %q with device.kind = %q", value, d.Kind), Hint: fmt.Sprintf(`want %q, or device.kind = "cuda"`, only)})
	}
	onCPU("device.tf32", d.TF32, "off")
	onCPU("device.offload", d.Offload, "none")
	if d.Products != device.IntegerProducts {
		onCPU("device.products", string(d.Products), string(device.FloatProducts))
	}
	onCPU("device.allocator", string(d.Allocator), string(device.DefaultAllocator))
	onCPU("device.preallocate", d.Preallocate, "off")
	onCPU("device.cache", d.Cache, "")
	out.Unless(d.MemoryFraction == 0 || d.Kind == device.CUDA, schema.Problem{Key: "device.memory_fraction", With: []string{"device.kind"},
		Found: fmt.Sprintf("the number %g with device.kind = %q", d.MemoryFraction, d.Kind), Hint: `want 0, or device.kind = "cuda"`})
	for key, value := range map[string]string{"device.attention": string(d.Attention), "device.kernels": string(d.Kernels)} {
		out.Unless(value != "fused" || d.Precision == device.BFloat16 || d.Kind == device.CPU, schema.Problem{
			Key: key, With: []string{"device.kind", "device.precision"},
			Found: fmt.Sprintf("the string %q with device.kind = %q and device.precision = %q", value, d.Kind, d.Precision),
			Hint:  `want "auto", or device.precision = "bfloat16", or device.kind = "cpu"`})
	}
	out.Unless(d.Shard != device.ShardFull || d.Products == device.FloatProducts, schema.Problem{
		Key: "device.shard", With: []string{"device.products"},
		Found: fmt.Sprintf("the string %q with device.products = %q", d.Shard, d.Products),
		Hint:  `want device.products = "float": quantized values are gathered, and not codes`})
	count := schema.Problem{Key: "device.count", With: []string{"device.kind"}}
	if d.Kind != device.CUDA {
		count.Found, count.Hint = fmt.Sprintf("the integer %d with device.kind = %q", d.Count, d.Kind), `want 1, or device.kind = "cuda"`
		out.Unless(d.Count <= 1, count)
	} else {
		count.With = append(count.With, "train.batch")
		count.Found, count.Hint = fmt.Sprintf("the integer %d with train.batch = %d", d.Count, batch), "want a divisor of train.batch"
		out.Unless(d.Count <= 1 || batch%d.Count == 0, count)
	}
	return out
}
