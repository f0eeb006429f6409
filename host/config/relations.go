package config

import (
	"fmt"
	"math"
)

// relations checks what ties keys together, and resolves what depends on
// other keys. A rule is skipped when one of its keys has a problem already.
func (d *decoder) relations(preset Preset) {
	d.kind()
	d.method()
	d.points()
	d.presetSizes(preset)
	d.heads()
	d.phases()
	d.device()
	m := &d.cfg.Model
	if m.Language() {
		d.rope()
		if m.Hidden == 0 {
			m.Hidden = SwiGLUHidden(m.Width)
		}
	}
}

// device refuses what the CPU has not, and micro-batches that the replicas cannot share.
func (d *decoder) device() {
	dev, batch := d.cfg.Device, d.cfg.Train.Batch
	for _, key := range []struct{ name, value, cpu string }{{"precision", dev.Precision, "float32"}, {"tf32", dev.TF32, "off"}} {
		if d.good("device.kind", "device."+key.name) && key.value != key.cpu && dev.Kind != "cuda" {
			d.report("device."+key.name, fmt.Sprintf("found the string %q with device.kind = %q", key.value, dev.Kind),
				fmt.Sprintf(`want %q, or device.kind = "cuda"`, key.cpu))
		}
	}
	if d.good("device.kind", "device.precision", "device.attention") && dev.Attention == "fused" && (dev.Kind != "cuda" || dev.Precision != "bfloat16") {
		d.report("device.attention", fmt.Sprintf("found the string %q with device.kind = %q and device.precision = %q", dev.Attention, dev.Kind, dev.Precision),
			`want "auto", or device.kind = "cuda" and device.precision = "bfloat16"`)
	}
	if dev.Count <= 1 || !d.good("device.kind", "device.count") {
		return
	}
	found := fmt.Sprintf("found the integer %d with ", dev.Count)
	if dev.Kind != "cuda" {
		d.report("device.count", found+fmt.Sprintf("device.kind = %q", dev.Kind), `want 1, or device.kind = "cuda"`)
	} else if batch%dev.Count != 0 && d.good("train.batch") {
		d.report("device.count", found+fmt.Sprintf("train.batch = %d", batch), "want a divisor of train.batch")
	}
}

func (d *decoder) good(keys ...string) bool {
	for _, k := range keys {
		if d.bad[k] {
			return false
		}
	}
	return true
}

// presetName refuses a size of another architecture.
func (d *decoder) presetName() {
	m := d.cfg.Model
	if _, ok := LookupPreset(m.Kind, m.Preset); ok || m.Preset == "" || !m.Language() || !d.good("model.preset") {
		return
	}
	d.report("model.preset", fmt.Sprintf("found the string %q, which is no size of %s", m.Preset, m.Kind),
		"want one of "+QuotedList(presetNames(m.Kind)))
}

// presetSizes refuses sizes that contradict the preset: the name of a size
// would otherwise say something untrue.
func (d *decoder) presetSizes(p Preset) {
	if p.Name == "" {
		return
	}
	m := d.cfg.Model
	for _, s := range []struct {
		key       string
		got, want int
	}{
		{"layers", m.Layers, p.Layers},
		{"width", m.Width, p.Width},
		{"heads", m.Heads, p.Heads},
		{"hidden", m.Hidden, p.Hidden},
	} {
		key := "model." + s.key
		// hidden = 0 is the rule that the presets follow themselves.
		if !d.good(key) || s.got == s.want || s.key == "hidden" && s.got == 0 {
			continue
		}
		d.report(key, fmt.Sprintf("found the integer %d, but preset %s has %d", s.got, p.Name, s.want),
			"leave the key out, or leave model.preset out and give all sizes")
	}
}

func (d *decoder) heads() {
	m := d.cfg.Model
	if !d.good("model.heads", "model.width") || m.Heads == 0 || m.Width == 0 {
		return
	}
	if m.KVHeads == 0 {
		d.cfg.Model.KVHeads = m.Heads
	} else if m.Heads%m.KVHeads != 0 && d.good("model.kv_heads") {
		d.report("model.kv_heads", fmt.Sprintf("found %d heads of keys and values for %d heads", m.KVHeads, m.Heads),
			"want a divisor of model.heads")
	}
	if m.Width%m.Heads != 0 || m.Width/m.Heads%2 != 0 {
		d.report("model.heads", fmt.Sprintf("found %d heads for a width of %d", m.Heads, m.Width),
			"want width/heads to be a whole, even number")
	}
}

func (d *decoder) rope() {
	if m := d.cfg.Model; d.good("model.rope_low", "model.rope_high") && m.RopeHigh <= m.RopeLow {
		d.report("model.rope_high", "found "+describeFloat(m.RopeHigh)+" with model.rope_low = "+decimal(m.RopeLow),
			"want a number above model.rope_low")
	}
}

// phases checks warm-up and decay against the length of the run.
func (d *decoder) phases() {
	s, steps := d.cfg.Schedule, d.cfg.Train.Steps
	if !d.good("schedule.warmup") {
		return
	}
	if s.Warmup >= 1 && s.Warmup != math.Trunc(s.Warmup) {
		d.report("schedule.warmup", "found the float "+decimal(s.Warmup),
			"want a fraction of the steps below 1, or a whole number of steps")
		return
	}
	if steps == 0 || !d.good("train.steps") {
		return
	}
	if w := s.WarmupSteps(steps); w > steps {
		d.report("schedule.warmup", fmt.Sprintf("found a warm-up of %d steps in a run of %d", w, steps),
			"want at most train.steps, or a fraction below 1")
		return
	}
	if s.Kind != "wsd" || !d.good("schedule.kind", "schedule.decay") {
		return
	}
	if w, c := s.WarmupSteps(steps), s.DecaySteps(steps); w+c > steps {
		d.report("schedule.decay", fmt.Sprintf("found a warm-up of %d and a decay of %d steps in a run of %d", w, c, steps),
			"want both together to fit in train.steps")
	}
}
