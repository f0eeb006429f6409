package step

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/cage-qat/cage/host/cage"
	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/refresh"
	"github.com/cage-qat/cage/host/compute/stage"
	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/sdk/program"
)

// Compiled holds the compiled programs of a step, one for each stage of its plan. A program is
// compiled when first needed, or by [Compiled.Prepare]: variants of the update, the evaluation and
// the measures exist only in runs that use them. A Compiled is not safe for concurrent use, except
// for [Compiled.Load].
type Compiled struct {
	dev  *engine.Device
	plan Plan
	// evaluationPlan is the plan with the quantizers of evaluation, or &plan if these are the same.
	evaluationPlan *Plan
	stages         map[string]*stage.Executable
	updates        map[updateKind]*stage.Update
	singles        map[cage.Mode]*single
	refresher      *refresh.Refresher
	teacher        stage.Tensors        // parameters of the teacher; nil if not loaded
	factors        map[string][]float32 // initial factors of adapters that are not drawn
	// evaluation computes the tensors used for evaluation; nil until needed.
	evaluation *stage.Update
}

type updateKind struct {
	mode       cage.Mode
	statistics bool
	observed   bool // set after an observation, which the update must not repeat
	part       cage.Part
	probes     dues // probes that are due
}

// Compile checks the plan. Its programs are compiled by [Compiled.Prepare], or when they are first
// run.
func Compile(dev *engine.Device, plan Plan) (*Compiled, error) {
	if err := plan.check(); err != nil {
		return nil, err
	}
	if _, ok := plan.Model.(model.Language); dev.Count() > 1 && !ok {
		return nil, fmt.Errorf("step: a model that reads no sequences cannot use %d replicas",
			dev.Count())
	}
	plan.dev, plan.replicas = dev, dev.Count()
	evaluation, err := plan.forEvaluation()
	if err != nil {
		return nil, err
	}
	plans := []*Plan{&plan}
	if evaluation != nil {
		plan.Pieces, plans = nil, append(plans, evaluation)
	}
	for _, p := range plans {
		if err := p.keepOperandsRotated(); err != nil {
			return nil, err
		}
		p.findCodes(dev)
		p.findKeys()
	}
	hasCodes := func(p *Plan) bool { return len(p.codes) > 0 }
	if dev.Products() == device.IntegerProducts && !slices.ContainsFunc(plans, hasCodes) {
		type key struct{}
		dev.Once(key{}, func() any {
			dev.Warn("device.products = \"integer\" has no effect: no activation and its weight both " +
				"have quantizers that give whole numbers from −128 to 127 with one scale for each row")
			return nil
		})
	}
	c := &Compiled{dev: dev, plan: plan, evaluationPlan: evaluation,
		stages:  map[string]*stage.Executable{},
		updates: map[updateKind]*stage.Update{}, singles: map[cage.Mode]*single{}}
	if evaluation == nil {
		c.evaluationPlan = &c.plan
	}
	var targets []refresh.Target
	for _, r := range plan.Rules {
		if r.RateFactor == 0 {
			continue // nothing reads its preconditioners
		}
		delay := plan.RefreshDelay[r.Name]
		targets = append(targets, refresh.Target{Tensor: r.Name, Optimizer: r.Optimizer, Delay: delay})
	}
	if c.refresher, err = refresh.New(dev, targets, plan.dividedTensors()); err != nil {
		return nil, fmt.Errorf("step: %w", err)
	}
	return c, nil
}

// isSingle reports whether steps run as one executable unless the host takes part.
func (c *Compiled) isSingle() bool {
	byDevice := c.plan.Dispatch == DispatchByDevice && !c.dev.SharesMemory()
	return len(c.plan.Opaque) == 0 && (c.plan.Dispatch == Single || byDevice)
}

// Keys of stages that several functions use. A gradient's key is the prefix followed by its kind.
const (
	quantizeKey   = "quantize"
	evaluationKey = "quantize for evaluation"
	gradientKey   = "gradient "
	lossesKey     = "losses"
	decodeKey     = "decode"
)

// Prepare compiles the programs that training runs, with correction, statistics and evaluation, and
// the stationarity measures if pareto is set. Compilation errors then occur before the first step,
// and no step waits for a compiler. Programs with other probes than those of the first two steps
// are compiled when they are due.
func (c *Compiled) Prepare(pareto bool) error {
	p := &c.plan
	quantized, refreshes := len(p.quantizedParams()) > 0, c.refresher.Any()
	probes := slices.Compact([]dues{p.probesDue(1), p.probesDue(2)})
	chain := !c.isSingle() || refreshes || pareto || probes[0] != ""
	var failed error // the first error; what follows it is compiled in vain
	compiled := func(_ any, err error) { failed = cmp.Or(failed, err) }
	for _, mode := range append(cage.Of(p.Rules).Modes(), cage.Idle) {
		if c.isSingle() {
			compiled(c.single(mode))
		}
		if !chain {
			continue
		}
		kinds := []updateKind{{mode: mode, part: cage.Collecting}, {mode: mode, part: cage.FeedingOpaque}}
		if refreshes {
			kinds = append(kinds, updateKind{mode: mode, part: cage.Observing})
		}
		for _, due := range probes {
			if due != "" {
				kinds = append(kinds, updateKind{mode: mode, part: cage.Probing, probes: due})
			}
			for _, statistics := range []bool{false, quantized} {
				kind := updateKind{mode: mode, part: cage.Updating, probes: due, statistics: statistics}
				// If steps are one executable, the chain still runs the steps with probes or
				// refreshes, and the steps between a refresh and its late effect.
				if !c.isSingle() || c.refresher.Late() || pareto || due != "" {
					kinds = append(kinds, kind)
				}
				if kind.observed = true; refreshes {
					kinds = append(kinds, kind)
				}
			}
		}
		for _, kind := range kinds {
			compiled(c.update(kind))
		}
	}
	if chain {
		full := p.FullPrecision
		kinds := []gradientKind{{full: full}}
		sampled := func(due dues) bool { return len(p.probes(due, true)) > 0 }
		if slices.ContainsFunc(probes, sampled) {
			kinds = append(kinds, gradientKind{full: full, sampled: true})
		}
		if pareto && quantized && !full {
			kinds = append(kinds, gradientKind{full: true})
		}
		for _, kind := range kinds {
			for n := range min(2, p.Accumulate) {
				kind.sum = n > 0
				compiled(c.gradient(kind))
			}
		}
		compiled(c.finish())
		if pareto && quantized {
			compiled(c.pareto(program.KindGradient.Of))
			if !full {
				compiled(c.pareto(sumName))
			}
		}
	}
	compiled(nil, c.prepareEvaluation())
	compiled(c.quantize(c.evaluationPlan))
	compiled(c.compileOnce(lossesKey, c.evaluationPlan.lossStage))
	return failed
}

// Plan returns the compiled plan. Its quantizers return rotated values where products use rotated
// operands.
func (c *Compiled) Plan() *Plan { return &c.plan }

// Device returns the device.
func (c *Compiled) Device() *engine.Device { return c.dev }

// Batch returns the number of sequences in a micro-batch, summed over replicas.
func (c *Compiled) Batch() int { return c.plan.Batch * c.dev.Count() }

// Close frees all executables.
func (c *Compiled) Close() {
	for _, e := range c.stages {
		e.Close()
	}
	for _, u := range c.updates {
		if u != nil {
			u.Close()
		}
	}
	for _, w := range c.singles {
		w.exec.Close()
	}
	if c.evaluation != nil {
		c.evaluation.Close()
	}
	c.refresher.Close()
	c.closeTeacher()
}

// compileOnce returns the executable of a stage, compiling it at the first call with key.
func (c *Compiled) compileOnce(key string, s func() stage.Stage) (*stage.Executable, error) {
	if e, ok := c.stages[key]; ok {
		return e, nil
	}
	e, err := c.compile(s())
	if err == nil {
		c.stages[key] = e
	}
	return e, err
}

func (c *Compiled) compile(s stage.Stage) (*stage.Executable, error) {
	return s.Compile(c.dev, c.plan.dividedTensors())
}

// quantize returns the executable of the quantize stage of a plan, which is c.plan or
// c.evaluationPlan; nil if it quantizes no parameter and merges no adapter.
func (c *Compiled) quantize(p *Plan) (*stage.Executable, error) {
	if len(p.quantizeInputs()) == 0 {
		return nil, nil
	}
	key := quantizeKey
	if p != &c.plan {
		key = evaluationKey
	}
	return c.compileOnce(key, p.quantizeStage)
}

func (c *Compiled) gradient(kind gradientKind) (*stage.Executable, error) {
	return c.compileOnce(fmt.Sprintf("%s%+v", gradientKey, kind), func() stage.Stage {
		return c.plan.gradientStage(kind)
	})
}

func (c *Compiled) finish() (*stage.Executable, error) {
	q, err := c.quantize(&c.plan)
	if err != nil {
		return nil, err
	}
	var quantized []engine.Spec
	if q != nil {
		quantized = q.OutputSpecs()
	}
	return c.compileOnce("finish", func() stage.Stage { return c.plan.finishStage(quantized) })
}

// update returns the compiled update programs selected by kind, or nil if there are none.
func (c *Compiled) update(kind updateKind) (*stage.Update, error) {
	if u, ok := c.updates[kind]; ok {
		return u, nil
	}
	rules := c.plan.rules(kind)
	jobs, err := cage.Jobs(rules, kind.part)
	if err != nil {
		return nil, err
	}
	var u *stage.Update
	if len(jobs) > 0 {
		name := fmt.Sprintf("%s (%s)", kind.part, kind.mode)
		if u, err = stage.CompileUpdate(c.dev, name, jobs, c.plan.dividedTensors()); err != nil {
			return nil, err
		}
	}
	c.updates[kind] = u
	return u, nil
}

// runKind runs the update programs selected by kind, if there are any.
func (c *Compiled) runKind(
	t stage.Tensors, kind updateKind, scalars stage.Scalars,
) (stage.Measures, error) {
	u, err := c.update(kind)
	if u == nil || err != nil {
		return nil, err
	}
	return u.Run(t, scalars)
}

func (p *Plan) rules(kind updateKind) []cage.Rule {
	rules := slices.Clone(p.Rules)
	for i := range rules {
		rules[i].Observed = kind.observed
		rules[i].Probing = kind.probes.has(rules[i].Optimizer.ProbeDue)
		if rules[i].Quantizer == nil && !rules[i].Factor {
			continue
		}
		rules[i].Mode = kind.mode
		rules[i].Statistics = kind.statistics && rules[i].Quantizer != nil
	}
	return rules
}
