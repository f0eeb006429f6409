package step

import (
	"fmt"
	"slices"

	"github.com/cage-qat/cage/host/cage"
	"github.com/cage-qat/cage/host/engine"
	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/internal/guard"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// Kernels are the compiled executables of a plan. Each is compiled when first
// needed: the forms of the update, the evaluation and the measures exist only in
// runs that use them. Not safe for concurrent use, but for [Kernels.Load].
type Kernels struct {
	dev  *engine.Device
	plan Plan
	// numbers of trained parameters of the quantizers of weights and of activations
	ownTrained, siteTrained int

	quantize  *engine.Executable // nil when no parameter is quantized
	layout    []int              // residuals of each quantized parameter
	gradients map[gradientKey]*engine.Executable
	updates   map[updateKey]*update
	// observations by the form of the correction; exec is nil where no optimizer
	// observes
	observations map[cage.Form]*update
	wholes       map[cage.Form]*whole
	failures     map[int]int    // refreshes in a row that failed, by rule
	splits       map[int]*split // refreshes that take effect late, by rule
	execute      executor
	others       map[string]*engine.Executable // by name: finish, losses, what is set up once, …
}

// executor runs refresh programs, several at once.
type executor func(*program.Program, map[string]reference.Tensor) (map[string]reference.Tensor, error)

// run executes a program; a panic is an error.
func (e executor) run(p *program.Program, in map[string]reference.Tensor) (out map[string]reference.Tensor, err error) {
	defer guard.Catch("reference", p.Name, &err)
	return e(p, in)
}

// gradientKey tells the executables of the forward and backward pass apart: whether
// running sums come in, and whether activations are in full precision.
// Local leaves out the sum over the device's replicas.
type gradientKey struct{ sum, full, local bool }

// updateKey tells the variants of the update apart.
type updateKey struct {
	form       cage.Form
	statistics bool
	observed   bool // after a refresh
}

// Compile checks the plan and compiles the quantization of the weights, with which
// everything begins.
func Compile(dev *engine.Device, plan Plan) (*Kernels, error) {
	if err := plan.check(); err != nil {
		return nil, err
	}
	if _, ok := plan.Model.(model.Language); dev.Count() > 1 && !ok {
		return nil, fmt.Errorf("step: a model that reads no sequences has none to share among %d replicas", dev.Count())
	}
	if err := plan.leaveRotated(); err != nil {
		return nil, err
	}
	k := &Kernels{
		ownTrained: len(plan.trainedWeights()), siteTrained: len(plan.trainedActivations()),
		dev: dev, plan: plan, execute: reference.RunFast,
		gradients: map[gradientKey]*engine.Executable{}, updates: map[updateKey]*update{},
		observations: map[cage.Form]*update{}, wholes: map[cage.Form]*whole{}, failures: map[int]int{},
		splits: map[int]*split{}, others: map[string]*engine.Executable{},
	}
	if err := k.splitRefreshes(); err != nil {
		return nil, err
	}
	if len(plan.quantized()) == 0 {
		return k, nil
	}
	specs, build := plan.quantizeGraph(&k.layout)
	var err error
	k.quantize, err = dev.Compile("quantize", specs, build)
	if err != nil {
		return nil, err
	}
	return k, nil
}

// Prepare compiles what the steps of a training need, those with the correction
// included, so that a plan that cannot be compiled fails before the first step and
// not when λ_t begins to grow.
func (k *Kernels) Prepare() error {
	forms := []cage.Form{cage.Off}
	if len(k.plan.quantized()) > 0 && k.plan.Form != "" && k.plan.Form != cage.Off {
		forms = append(forms, k.plan.Form)
	}
	if k.isWhole() {
		if err := k.prepareWhole(forms); err != nil || !k.plan.refreshes() {
			return err
		}
	}
	for _, sum := range []bool{false, true} {
		if sum && k.plan.Accumulate == 1 {
			continue
		}
		if _, err := k.gradient(gradientKey{sum: sum, full: k.plan.FullPrecision}); err != nil {
			return err
		}
	}
	if _, err := k.finish(); err != nil {
		return err
	}
	for _, parts := range k.splits {
		if parts.apply == nil {
			continue
		}
		if _, err := k.applier(parts.apply); err != nil {
			return err
		}
	}
	for _, form := range forms {
		// Refreshes that take effect late run the chain, too, also between observations.
		if !k.isWhole() || len(k.splits) > 0 {
			if _, err := k.update(updateKey{form: form}); err != nil {
				return err
			}
		}
		if !k.plan.refreshes() {
			continue
		}
		if _, err := k.observation(form); err != nil {
			return err
		}
		if _, err := k.update(updateKey{form: form, observed: true}); err != nil {
			return err
		}
	}
	return nil
}

// Plan returns the plan that was compiled. The quantizers of what products leave
// rotated return rotated values in it.
func (k *Kernels) Plan() *Plan { return &k.plan }

// Batch is the number of sequences in a micro-batch, of all replicas together.
func (k *Kernels) Batch() int { return k.plan.Batch * k.dev.Count() }

// Close frees all executables.
func (k *Kernels) Close() {
	list := []*engine.Executable{k.quantize}
	for _, e := range k.gradients {
		list = append(list, e)
	}
	for _, e := range k.others {
		list = append(list, e)
	}
	for _, u := range k.updates {
		list = append(list, u.exec)
	}
	for _, u := range k.observations {
		list = append(list, u.exec)
	}
	for _, w := range k.wholes {
		list = append(list, w.exec)
	}
	for _, e := range list {
		if e != nil {
			e.Close()
		}
	}
}

func (k *Kernels) gradient(key gradientKey) (*engine.Executable, error) {
	if e, ok := k.gradients[key]; ok {
		return e, nil
	}
	name := "gradient"
	if key.full {
		name = "full-precision gradient"
	}
	specs, build := k.plan.gradientGraph(key)
	e, err := k.dev.Compile(name, specs, build)
	if err == nil {
		k.gradients[key] = e
	}
	return e, err
}

func (k *Kernels) update(key updateKey) (*update, error) {
	if u, ok := k.updates[key]; ok {
		return u, nil
	}
	u := k.newUpdate(k.plan.rules(key))
	u.name = fmt.Sprintf("update (%s)", key.form)
	if err := k.compileUpdate(u); err != nil {
		return nil, err
	}
	k.updates[key] = u
	return u, nil
}

// rules are the plan's in one variant of the update.
func (p *Plan) rules(key updateKey) []cage.Rule {
	rules := slices.Clone(p.Rules)
	for i := range rules {
		rules[i].Observed = key.observed
		if rules[i].Quantizer == nil {
			continue
		}
		rules[i].Form, rules[i].Variant, rules[i].Statistics = key.form, p.Variant, key.statistics
	}
	return rules
}

// once compiles the named executable at its first use.
func (k *Kernels) once(name string, graph func() ([]engine.Spec, engine.BuildFunc)) (*engine.Executable, error) {
	if e, ok := k.others[name]; ok {
		return e, nil
	}
	specs, build := graph()
	e, err := k.dev.Compile(name, specs, build)
	if err == nil {
		k.others[name] = e
	}
	return e, err
}

func (k *Kernels) finish() (*engine.Executable, error) {
	return k.once("finish", func() ([]engine.Spec, engine.BuildFunc) { return k.plan.finishGraph(k.quantize, k.layout) })
}
