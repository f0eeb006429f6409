package config

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/cage-qat/cage/host/cage"
	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/internal/plaintoml"
	"github.com/cage-qat/cage/internal/schema"
)

// relations checks constraints between keys, and sets values that depend on other keys. All keys
// must be valid on their own.
func (d *decoder) relations() {
	c := d.cfg
	language := c.Model.Language()
	// Methods need quantized weights. Untrained runs are exempt: cage quantize used to write one.
	if !c.untrained && c.Method.Name != cage.NameCAGE && c.Method.Name != cage.NameOff &&
		!c.Quantizer.quantizesWeights() {
		d.Report("method.name",
			fmt.Sprintf("found the string %q, but no weight is quantized", c.Method.Name),
			"want a [quantizer.weights], with which the run is evaluated")
	}
	d.problems(c.Model.Check())
	if c.untrained {
		for _, name := range []string{"data", "schedule", distillationTable, adaptersTable} {
			if d.raw(name) != nil && c.trains(name) {
				d.Report(d.TableKey(name), "found with train.steps = 0, with which nothing is trained",
					"leave it out, or give steps")
			}
		}
	} else if p, found := c.Schedule.Problem(c.Train.Steps); found {
		d.problems(schema.Problems{p})
	}
	d.problems(c.Train.averageProblems())
	d.problems(c.Method.Check())
	d.strength()
	d.problems(c.Device.check(c.Train.Batch))
	if language && !c.untrained && len(c.Data.Mixture) > 0 && d.Given("data.train") {
		d.Report("data.mixture", "found beside data.train", "want one of them")
	}
	d.adapters()
	d.conversations()
	d.overrides()
	if c.Train.Distillation.Teacher == TeacherInitial && c.Init == "" {
		d.Report(teacherKey, `found "initial" without model.init`,
			"want weights in model.init, which the model starts from, or the directory of a teacher")
	}
	if n := c.Device.Count; len(c.Train.Samples) > 0 && n > 1 {
		d.Report("train.samples",
			fmt.Sprintf("found with device.count = %d, which does not support samples", n),
			"leave the key out: `cage generate` continues texts with a checkpoint")
	}
	c.Model.FillIn()
	if c.NewTokens > 0 && c.Init == "" {
		d.Report(newTokensKey, "found without "+initKey, "leave it out: all rows start at random")
	}
	if c.NewRowsFrom != nil && c.NewTokens == 0 {
		d.Report(newRowsKey, "found without "+newTokensKey,
			"leave it out, or give the number of new tokens")
	}
	if d.initial != nil {
		d.problems(d.initial.problems(c))
	}
	if !language {
		c.Train.Batch = 1
	}
}

// strength checks method.strength, and sets its default.
func (d *decoder) strength() {
	const key = "method.strength"
	c := d.cfg
	m := &c.Method.CAGE
	decoupled := c.Method.Name == cage.NameCAGE && m.Form == cage.Decoupled && !c.untrained
	switch given := m.Strength != nil; {
	case given && d.Given("method.lambda"):
		d.Report(key, "found beside method.lambda", "want one of them: λ follows from strength")
	case given && d.Given("method.form") && m.Form != cage.Decoupled:
		hint := `leave strength out, or set method.form = "decoupled"`
		if m.Form == cage.Coupled {
			hint = "want method.lambda: in the gradient, the optimizer decides how far the correction " +
				`moves a weight; or method.form = "decoupled"`
		}
		d.Report(key, fmt.Sprintf("found with method.form = %q", m.Form), hint)
		m.Strength = nil
	case !decoupled: // another method, no quantized weight, or no training
		m.Strength = nil
	case !given && !d.Given("method.lambda"):
		c.defaultStrength()
	}
	d.problems(c.strengthProblems())
}

// defaultStrength sets the default of method.strength, which is 0 if the learning rate is 0 in all
// steps of the correction.
func (c *Config) defaultStrength() {
	s := cage.DefaultStrength(c.Train.Steps)
	c.Method.CAGE.Strength, c.Method.CAGE.Lambda = &s, 0
	if len(c.strengthProblems()) > 0 {
		s = 0
	}
}

// strengthProblems reports a strength that no finite λ gives. Train.Steps is 0 if it is unknown.
func (c *Config) strengthProblems() (out schema.Problems) {
	if _, found := c.Schedule.Problem(c.Train.Steps); found || c.Train.Steps == 0 {
		return nil
	}
	m := c.ResolvedMethod().CAGE
	// Steps compute with λ in float32. With a floor of 0, "one-cycle" ends at a rate of 1e-32 times
	// the peak, where a λ that gives the strength is finite, but useless.
	possible := m.Lambda <= math.MaxFloat32 &&
		(m.Strength == nil || m.Lambda*c.Schedule.Rate <= 1e12*(*m.Strength))
	out.Unless(possible, schema.Problem{
		Key: "method.strength", Found: "a learning rate of 0, or nearly, in all steps of the correction",
		Hint: "want a smaller method.silence, or a schedule.floor above 0"})
	return out
}

// adapters checks keys that adapters do not allow.
func (d *decoder) adapters() {
	c := d.cfg
	if c.Adapters.Rank == 0 {
		return
	}
	if c.Init == "" {
		d.Report(adaptersTable, "found without "+initKey,
			"want the model whose weights get adapters in "+initKey)
	}
	const want = "leave it out, or leave [adapters] out"
	for _, k := range []struct {
		key string
		has bool
	}{
		{newTokensKey, c.NewTokens > 0},
		{"method.name", c.Method.Name != cage.NameCAGE && c.Method.Name != cage.NameOff},
		{"method.variant", c.Method.CAGE.Variant == cage.Official},
		{"method.gradient", c.Method.Gradient == cage.FullGradient},
		{"method.pareto_every", c.Method.ParetoEvery > 0},
		{"diagnostics.every", c.Diagnostics.Every > 0},
		{"device.shard", c.Device.Shard != device.ShardNone},
	} {
		if k.has {
			d.Report(k.key, "found a setting that is not supported with [adapters]", want)
		}
	}
	if len(d.Errs) == 0 { // the sizes of the model go together
		d.problems(c.Adapters.Check(c.Model))
	}
}

// conversations checks keys that only apply to texts or only to conversations.
func (d *decoder) conversations() {
	data := d.cfg.Data
	chat := d.cfg.Model.Language() && data.Kind == KindChat
	for _, k := range []struct {
		key   string
		other bool // the key has a value that only the other kind of data allows
	}{
		{"data.packing", !chat && data.Packing != defaultPacking},
		{"data.epochs", !chat && data.Epochs != 1},
		{"data.documents", chat && data.Documents != documentsJoined},
		{"data.mixture", chat && len(data.Mixture) > 0},
	} {
		if k.other && (d.Given(k.key) || k.key == "data.mixture") {
			d.Report(k.key, fmt.Sprintf("found with data.kind = %q", data.Kind), "leave the key out")
		}
	}
	if chat && len(data.Train) > 1 {
		d.Report("data.train",
			fmt.Sprintf("found %d files with data.kind = %q", len(data.Train), KindChat), "want one file")
	}
}

// overrides checks the block indices of overrides. It replaces negative ones, which count from the
// last block.
func (d *decoder) overrides() {
	c := d.cfg
	n := c.Model.Layers
	for _, o := range c.Quantizer.Overrides {
		for i, layer := range o.Layers {
			if layer < 0 {
				layer += n
			}
			if layer < 0 || layer >= n {
				hint := fmt.Sprintf("want 0 to %d, or -1 (the last block) to -%d", n-1, n)
				if n == 0 {
					hint = "leave it out"
				}
				d.Report(plaintoml.JoinKey(o.Table, "layers"),
					fmt.Sprintf("found %d, but the model has %d transformer blocks", o.Layers[i], n), hint)
				break
			}
			o.Layers[i] = layer
		}
	}
}

func (d *decoder) problems(list schema.Problems) {
	for _, p := range list {
		d.Report(p.Key, "found "+p.Found, p.Hint)
	}
}

// foreignKeys reports keys and tables of other kinds of models and keys of other methods. These
// reports replace any other reports about the keys.
func (d *decoder) foreignKeys() {
	for _, t := range d.schema {
		selector, value := t.selector(d.cfg)
		if !d.Good(selector, plaintoml.ParentKey(selector)) {
			continue
		}
		report := func(key, what, hint string, owners []string) {
			d.Errs = slices.DeleteFunc(d.Errs, func(e *plaintoml.Error) bool {
				return e.Key == key || strings.HasPrefix(e.Key, key+".")
			})
			where := selector + " = " + strings.ReplaceAll(schema.Quoted(owners), ", ", " or ")
			of, set := where, "set "+where
			if slices.Equal(owners, architecture.Languages) {
				of, set = "language models", "set "+selector+" to one of them"
			}
			d.Report(key, fmt.Sprintf("%s of %s, found with %s = %q", what, of, selector, value),
				hint+", or "+set)
		}
		if t.models != nil && !slices.Contains(t.models, value) {
			if d.raw(t.name) != nil && d.Good(plaintoml.ParentKey(t.name)) {
				report(d.TableKey(t.name), "a table", "leave it out", t.models)
			}
			continue
		}
		hint := "leave it out"
		if t.name == "method" {
			hint = "leave the key out"
		}
		for _, k := range t.keys {
			if t.plugin == nil && d.Given(t.path(k.Name)) && !k.Belongs(value) {
				report(t.path(k.Name), "a key", hint, k.For)
			}
		}
	}
}

// check reports settings that need a GPU, and a batch size that device.count does not divide.
func (d Device) check(batch int) (out schema.Problems) {
	gpuOnly := func(key, value, only string) {
		out.Unless(value == only || d.Kind == device.CUDA, schema.Problem{Key: key,
			Found: fmt.Sprintf("the string %q with device.kind = %q", value, d.Kind),
			Hint:  fmt.Sprintf(`want %q, or device.kind = "cuda"`, only)})
	}
	gpuOnly("device.tf32", d.TF32, "off")
	gpuOnly("device.allocator", string(d.Allocator), string(device.DefaultAllocator))
	gpuOnly("device.preallocate", d.Preallocate, "off")
	gpuOnly("device.cache", d.Cache, "")
	out.Unless(d.MemoryFraction == 0 || d.Kind == device.CUDA, schema.Problem{
		Key:   "device.memory_fraction",
		Found: fmt.Sprintf("the number %g with device.kind = %q", d.MemoryFraction, d.Kind),
		Hint:  `want 0, or device.kind = "cuda"`})
	fused := map[string]string{
		"device.attention": string(d.Attention), "device.kernels": string(d.Kernels)}
	for key, value := range fused {
		allowed := value != "fused" || d.Precision == device.BFloat16 || d.Kind == device.CPU
		out.Unless(allowed, schema.Problem{
			Key: key,
			Found: fmt.Sprintf("the string %q with device.kind = %q and device.precision = %q",
				value, d.Kind, d.Precision),
			Hint: `want "auto", or device.precision = "bfloat16", or device.kind = "cpu"`})
	}
	out.Unless(d.Shard != device.ShardFull || d.Products == device.FloatProducts, schema.Problem{
		Key:   "device.shard",
		Found: fmt.Sprintf("the string %q with device.products = %q", d.Shard, d.Products),
		Hint:  `want device.products = "float": quantized values are gathered, and not codes`})
	count := schema.Problem{Key: "device.count", Hint: "want a divisor of train.batch",
		Found: fmt.Sprintf("the integer %d with train.batch = %d", d.Count, batch)}
	if d.Kind != device.CUDA {
		count.Hint = `want 1, or device.kind = "cuda"`
		count.Found = fmt.Sprintf("the integer %d with device.kind = %q", d.Count, d.Kind)
	}
	out.Unless(d.Count <= 1 || d.Kind == device.CUDA && batch%d.Count == 0, count)
	return out
}
