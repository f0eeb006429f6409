package step

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/cage-qat/cage/host/cage"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/refresh"
	"github.com/cage-qat/cage/host/compute/stage"
	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/model/network"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/spec"
)

// State is the training state on the device: all trained tensors and the states of optimizers and
// quantizers, by their names in checkpoints. Results of pending refreshes are in host memory.
type State struct {
	Tensors stage.Tensors
	// Pending holds the refreshes whose results have not taken effect yet. Their results are among
	// the tensors that [Compiled.Stored] lists.
	Pending refresh.Pending
	// Unsearched is set while the quantizer searches due after the last step have not run: see
	// [Compiled.Search].
	Unsearched bool
	// inconsistent is set while a step replaces buffers, and stays set if the step then fails.
	inconsistent bool
	held         <-chan struct{} // see Hold; nil if no one reads
}

// Hold makes the next step wait until done is closed before it replaces a tensor, so that the
// tensors of [Compiled.Stored] can be read while it computes gradients. A step that is one
// executable waits before it starts.
func (s *State) Hold(done <-chan struct{}) { s.held = done }

// replace waits for readers of the state, and marks it as inconsistent until its tensors are
// replaced.
func (s *State) replace() {
	s.wait()
	s.inconsistent = true
}

func (s *State) wait() {
	if s.held != nil {
		<-s.held
		s.held = nil
	}
}

// Consistent reports whether the state is the result of complete steps. A step that failed while
// replacing parameters and states leaves a mixture of old and new ones, and freed buffers.
func (s *State) Consistent() bool { return !s.inconsistent }

// Param returns the buffer of a trained tensor.
func (s *State) Param(tensor string) *engine.Buffer {
	return s.Tensors[program.KindParam.Of(tensor)]
}

// keepState moves the tensors of a state from t, the tensors of a step, back into the state, and
// frees the other tensors of t.
func keepState(state, t stage.Tensors) {
	for name, b := range t {
		if _, own := state[name]; own {
			state[name] = b
		} else {
			b.Finalize()
		}
	}
}

// stateTensors lists the tensors of a state: the frozen parameters, and those that steps update.
func (p *Plan) stateTensors() []Tensor {
	return append(p.frozen(), p.updatedTensors()...)
}

// updatedTensors lists the tensors that steps update, which are those of a checkpoint.
func (p *Plan) updatedTensors() []Tensor {
	var list []Tensor
	for i, t := range p.tensors() {
		if p.Rules[i].Frozen {
			continue
		}
		list = append(list, Tensor{Name: program.KindParam.Of(t.Name), Dims: t.Dims})
		for _, st := range p.Rules[i].State() {
			name := program.KindState.PartOf(t.Name, st.Name)
			list = append(list, Tensor{Name: name, Dims: st.Shape, Storage: st.Storage})
		}
	}
	return append(list, p.quantizerStates()...)
}

// Stored is a tensor of a state for a checkpoint.
type Stored struct {
	Name string
	Dims []int
	// Read returns the elements, which are read-only and valid until the next step replaces them
	// ([State.Hold]): on the CPU they are the state's own memory.
	Read func() ([]float32, error)
	// Storage is a type that represents the elements exactly.
	Storage sdk.Storage
	// Rows is set if these are only the rows of this process; other processes have the rows before
	// and after them.
	Rows bool
}

// Refreshes reports whether optimizers have preconditioners that the host recomputes.
func (c *Compiled) Refreshes() bool { return c.refresher.Any() }

// Elsewhere reports whether other processes have rows of tensors of the state.
func (s *State) Elsewhere() bool {
	tensors := slices.Collect(maps.Values(s.Tensors))
	return slices.ContainsFunc(tensors, (*engine.Buffer).Elsewhere)
}

// Stored lists the tensors of a state, for a checkpoint. They include the results of refreshes that
// have not taken effect yet, for which Stored waits ([State.Pending]), and the tensors used for
// evaluation that differ from the trained ones, so that a checkpoint can be evaluated without the
// optimizer. If other processes have rows of tensors ([State.Elsewhere]), each process lists its
// own, and all must call Stored together, because they compute the tensors for evaluation together.
func (c *Compiled) Stored(s *State) []Stored {
	var out []Stored
	for _, t := range c.plan.updatedTensors() {
		b := s.Tensors[t.Name]
		out = append(out, ownOf(t, b, func() ([]float32, error) { return stage.View(b) }))
	}
	for _, r := range s.Pending.Results() {
		read := func() ([]float32, error) { return r.Data, nil }
		out = append(out, Stored{Name: r.Name, Dims: r.Dims, Read: read, Storage: sdk.StoreFloat32})
	}
	// An average over steps is already listed, because it is part of the state.
	differs := func(r cage.Rule) bool { return r.Optimizer.Evaluate != nil }
	if !slices.ContainsFunc(c.plan.Rules, differs) {
		return out
	}
	evaluated, err := c.evaluated(s) // now, because the next step changes its inputs
	for _, r := range c.plan.Rules {
		if !differs(r) {
			continue
		}
		var data []float32
		b := evaluated[program.KindParam.Of(r.Name)]
		if err == nil {
			data, err = engine.DownloadOwn[float32](b)
		}
		t := Tensor{Name: program.KindEvaluated.Of(r.Name), Dims: r.Shape}
		out = append(out, ownOf(t, b, func() ([]float32, error) { return data, err }))
		b.Finalize()
	}
	return out
}

func ownOf(t Tensor, b *engine.Buffer, read func() ([]float32, error)) Stored {
	out := Stored{Name: t.Name, Dims: t.Dims, Read: read, Storage: t.Storage}
	if b.Elsewhere() {
		out.Dims, out.Rows = b.OwnShape().Dimensions, true
	}
	return out
}

// LoadFunc loads a tensor of a checkpoint, given its name.
type LoadFunc func(name string) (Tensor, error)

// EvaluationNames returns the names, in checkpoints, of the tensors that may replace a parameter or
// trained parameter in evaluation, given its own name there: first the tensor that its optimizer
// provides, then its average over steps. Most checkpoints have neither.
func EvaluationNames(name string) []string {
	owner := strings.TrimPrefix(name, string(program.KindParam)+"/")
	average := program.KindState.PartOf(owner, cage.AverageState)
	return []string{program.KindEvaluated.Of(owner), average}
}

// LoadQuantizer returns a function that loads an input of the evaluation program of the
// quantizer of a weight or site: a trained parameter or a state tensor.
func LoadQuantizer(
	load LoadFunc,
) func(site string, q spec.Quantizer, input string) ([]float32, error) {
	return func(site string, q spec.Quantizer, input string) ([]float32, error) {
		t, err := load(QuantizerInput(site, q.Trained, input))
		return t.Data, err
	}
}

// QuantizerInput returns the name of the tensor that the quantizer of a weight or site takes as the
// given input of its evaluation program. trained has the trained parameters.
func QuantizerInput(site string, trained []spec.Tensor, input string) string {
	for _, t := range trained {
		if spec.TrainedPrefix+t.Name == input {
			return program.KindParam.Of(t.At(site))
		}
	}
	return program.KindQuantizerState.PartOf(site, strings.TrimPrefix(input, spec.KeptPrefix))
}

// LoadParams returns a function that loads only the parameters of a model. It calls values for the
// elements of a parameter, and uses them before the next call.
func LoadParams(m model.Model, values func(param string) ([]float32, error)) LoadFunc {
	params := map[string]architecture.Param{}
	for _, p := range m.Params() {
		params[program.KindParam.Of(p.Name)] = p
	}
	return func(name string) (Tensor, error) {
		p, ok := params[name]
		if !ok {
			return Tensor{}, fmt.Errorf("the model has no parameter %s", name)
		}
		data, err := values(p.Name)
		return Tensor{Name: name, Dims: p.Dims, Data: data}, err
	}
}

func (load LoadFunc) loadShaped(name string, dims []int) ([]float32, error) {
	t, err := load(name)
	if err == nil && !slices.Equal(t.Dims, dims) {
		err = fmt.Errorf("%s has shape %v, the run needs %v", name, t.Dims, dims)
	}
	return t.Data, err
}

// load loads a tensor, which several may store on the device.
func (c *Compiled) load(load LoadFunc, t Tensor) (stage.Tensors, error) {
	data, err := load.loadShaped(t.Name, t.Dims)
	if err != nil {
		return nil, err
	}
	b, err := c.put(t, data)
	if t.packed != nil && err == nil {
		defer b.Finalize()
		return c.pack(t, b)
	}
	return stage.Tensors{t.Name: b}, err
}

// RestoreRefreshes restores the refreshes that were pending in a checkpoint, with their results.
func (c *Compiled) RestoreRefreshes(s *State, list []refresh.Record, load LoadFunc) error {
	// Earlier versions also refreshed tensors whose rate is 0.
	list = slices.DeleteFunc(slices.Clone(list), func(record refresh.Record) bool {
		return slices.ContainsFunc(c.plan.Rules, func(r cage.Rule) bool {
			return r.Name == record.Tensor && r.RateFactor == 0
		})
	})
	return c.refresher.Restore(&s.Pending, list, load.loadShaped)
}

// Upload creates a state from the tensors of a checkpoint.
func (c *Compiled) Upload(load LoadFunc) (*State, error) {
	return c.upload(c.plan.stateTensors(), load)
}

// UploadParams creates a state for evaluation from a checkpoint: the trained tensors and the states
// of quantizers, without those of optimizers.
func (c *Compiled) UploadParams(load LoadFunc) (*State, error) {
	list := c.plan.tensors()
	for i := range list {
		list[i].Name = program.KindParam.Of(list[i].Name)
	}
	return c.upload(append(list, c.plan.quantizerStates()...), load)
}

func (c *Compiled) upload(list []Tensor, load LoadFunc) (*State, error) {
	s := &State{Tensors: stage.Tensors{}}
	for _, t := range list {
		loaded, err := c.load(load, t)
		if err != nil {
			s.Close()
			return nil, err
		}
		maps.Copy(s.Tensors, loaded)
	}
	return s, nil
}

// Close frees all buffers and cancels pending refreshes.
func (s *State) Close() {
	s.Pending.Close()
	s.Tensors.Finalize()
}

// NewState draws the parameters from the seed, initializes the trained parameters and states of
// quantizers from them and from a batch of tokens, [batch, context+1], and runs the optimizers'
// init programs. The tokens are needed only if activation quantizers have trained parameters or
// state, or if a quantizer takes column statistics. Ending ctx stops the searches of quantizers.
func (c *Compiled) NewState(
	ctx context.Context, seed uint64, tokens []int32,
) (*State, error) {
	workers := 1
	if c.dev.SharesMemory() { // otherwise each worker needs a copy in host memory
		workers = c.dev.Workers()
	}
	draw := func(p architecture.Param) (stage.Tensors, error) {
		name := program.KindParam.Of(p.Name)
		b, err := c.fill(name, p.Dims, func(values []float32) error {
			p.Draw(seed, values)
			return nil
		})
		return stage.Tensors{name: b}, err
	}
	return c.newState(ctx, tokens, c.plan.Rules, workers, draw, nil)
}

// NewStateFrom is [Compiled.NewState] with parameters that are loaded instead of drawn. Also loaded
// are the tensors with the given names, of quantizers of weights ([QuantizerInput]).
func (c *Compiled) NewStateFrom(
	ctx context.Context, load LoadFunc, tokens []int32, quantizers []string,
) (*State, error) {
	return c.newState(ctx, tokens, c.plan.Rules, 1, c.loadParam(load), func(t stage.Tensors) error {
		for _, name := range quantizers {
			loaded, err := c.load(load, Tensor{Name: name, Dims: t[name].Shape().Dimensions})
			if err != nil {
				return err
			}
			t[name].Finalize()
			maps.Copy(t, loaded)
		}
		return nil
	})
}

// StartParams creates a state for evaluation with quantizers that the parameters were not trained
// with. The trained parameters of quantizers get their initial values; activation quantizers, whose
// initial values would depend on data, must not have any.
func (c *Compiled) StartParams(load LoadFunc) (*State, error) {
	list := append(c.plan.activationQuantizerParameters(), c.plan.activationQuantizerStates()...)
	if len(list) > 0 {
		return nil, fmt.Errorf("%s is trained: this quantizer of activations cannot be used with a "+
			"model that was not trained with it", list[0].Name)
	}
	if groups := c.plan.calibratedGroups(); len(groups) > 0 {
		return nil, fmt.Errorf("the quantizer of %s needs activation statistics, and so a calibration "+
			"text: quantize the model with cage quantize", groups[0].weights[0])
	}
	return c.newState(context.Background(), nil, nil, 1, c.loadParam(load), nil)
}

func (c *Compiled) loadParam(load LoadFunc) func(architecture.Param) (stage.Tensors, error) {
	return func(p architecture.Param) (stage.Tensors, error) {
		return c.load(load, Tensor{Name: program.KindParam.Of(p.Name), Dims: p.Dims,
			Storage: c.plan.FrozenStorage, packed: c.plan.Packed[p.Name]})
	}
}

func (c *Compiled) newState(
	ctx context.Context, tokens []int32, rules []cage.Rule, workers int,
	param func(architecture.Param) (stage.Tensors, error), quantizers func(stage.Tensors) error,
) (*State, error) {
	params := c.plan.Model.Params()
	loaded := make([]stage.Tensors, len(params))
	var group errgroup.Group
	group.SetLimit(workers)
	for i, p := range params {
		group.Go(func() (err error) {
			if loaded[i], err = param(p); err != nil {
				return fmt.Errorf("initialize %s: %w", p.Name, err)
			}
			return nil
		})
	}
	err := group.Wait()
	s := &State{Tensors: stage.Tensors{}}
	for _, t := range loaded { // also after an error, when closing s frees them
		maps.Copy(s.Tensors, t)
	}
	if err == nil {
		err = c.initFactors(s.Tensors)
	}
	if err == nil {
		err = c.initQuantizers(ctx, s, tokens, quantizers)
	}
	if err == nil {
		err = c.initOptimizers(s.Tensors, rules)
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// initQuantizers adds the trained parameters and states of quantizers to a state, and runs their
// searches. It then calls replace, unless that is nil, which may replace those of weights.
func (c *Compiled) initQuantizers(
	ctx context.Context, s *State, tokens []int32, replace func(stage.Tensors) error,
) error {
	columns, err := c.columnStatistics(s.Tensors, tokens)
	defer columns.Finalize()
	if err == nil {
		err = c.initWeightQuantizers(s.Tensors, columns)
	}
	if err == nil && replace != nil {
		err = replace(s.Tensors)
	}
	if err == nil {
		err = c.initSearched(ctx, s)
	}
	if err == nil {
		err = c.initActivationQuantizers(s.Tensors, columns, tokens)
	}
	return err
}

func (c *Compiled) initWeightQuantizers(t, columns stage.Tensors) error {
	p := &c.plan
	hasState := func(r cage.Rule) bool { return r.Quantizer != nil && r.Quantizer.InitState != nil }
	if len(p.weightQuantizerParameters()) == 0 && !slices.ContainsFunc(p.Rules, hasState) {
		return nil
	}
	specs := append(inputSpecs(p.quantizeInputs(), program.KindParam.Of, false), p.columnSpecs()...)
	write := func(_ *program.Builder, in stage.Values) stage.Values {
		out := stage.Values{}
		of := p.columns(in)
		for _, t := range p.quantizedParams() {
			q, x, columns := p.Weights[t.Name], p.quantizerInput(t, in), of[t.Name]
			values := q.Init(x, columns)
			for i, trained := range parametersOf(q, t.Name) {
				name := program.KindParam.Of(trained.Name)
				if _, shared := out[name]; !shared { // one that sites share keeps its first value
					out[name] = values[i]
				}
			}
			setNext(out, q, t.Name, q.InitState(x, columns), asNamed)
		}
		return out
	}
	initial := stage.Stage{Name: "initial quantizer parameters", Inputs: specs, Write: write}
	return c.runOnce(initial, t, columns)
}

func (c *Compiled) runOnce(s stage.Stage, t stage.Tensors, borrowed ...stage.Tensors) error {
	e, err := c.compile(s)
	if err != nil {
		return err
	}
	defer e.Close()
	return e.Run(t, borrowed...)
}

// initActivationQuantizers adds the states of the activation quantizers to t, and those of their
// trained parameters that they do not share with weights. They are computed from the activations of
// this batch at each site, with all earlier quantizers active, and are means, or maxima, over the
// replicas.
func (c *Compiled) initActivationQuantizers(t, columns stage.Tensors, tokens []int32) error {
	shared := slices.DeleteFunc(c.plan.activationQuantizerParameters(), func(p Tensor) bool {
		return t[program.KindParam.Of(p.Name)] == nil
	})
	fresh := len(c.plan.activationQuantizerParameters()) - len(shared)
	if fresh+len(c.plan.activationQuantizerStates()) == 0 {
		return nil
	}
	batch, err := c.uploadBatch(tokens)
	if err != nil {
		return fmt.Errorf("calibration: %w", err)
	}
	defer batch.Finalize()
	values := stage.Tensors{}
	defer values.Finalize()
	if err := c.runQuantize(c.evaluationPlan, values, t); err != nil {
		return err
	}
	p := c.evaluationPlan
	specs := slices.Concat(inputSpecs(p.params(), p.forwardName(false), false),
		inputSpecs(shared, program.KindParam.Of, false),
		[]engine.Spec{p.tokenSpec()}, p.columnSpecs())
	of := p.batchProgram(false)
	calibration := stage.Stage{Name: "calibration", Inputs: specs, Calls: p.Model.Calls(of.Shape),
		Write: func(b *program.Builder, in stage.Values) stage.Values {
			return p.calibrate(b, &of, in)
		}}
	return c.runOnce(calibration, t, values, columns, stage.Tensors{tokensName: batch})
}

// calibrate returns the initial values of the quantizers of activations that in does not have.
func (p *Plan) calibrate(b *program.Builder, of *modelProgram, in stage.Values) stage.Values {
	groups := p.calibratedGroups()
	of.From = map[string]string{}
	results := map[string]string{} // the tensors that outputs of the program are
	first := map[string]string{}   // the outputs that are trained parameters
	for _, s := range p.Model.ActivationSites(p.Batch, p.Context) {
		q := p.Activations[s.Name]
		if q == nil {
			continue
		}
		var known []string
		for i, t := range parametersOf(q, s.Name) {
			operand := spec.TrainedPrefix + q.Trained()[i].Name
			input, tensor := network.InputOf(s.Name, operand), program.KindParam.Of(t.Name)
			switch {
			case in[tensor].Valid():
				of.tensors[input] = tensor
			case first[tensor] != "":
				of.From[input] = first[tensor]
			default:
				first[tensor], results[input] = input, tensor
				continue
			}
			known = append(known, operand)
		}
		for i, t := range statesOf(q, s.Name) {
			results[network.InputOf(s.Name, spec.KeptPrefix+q.State()[i].Name)] = t.Name
		}
		init, c, err := q.Calibration(known, p.replicas)
		if err != nil {
			b.Fail(err)
			return nil
		}
		if of.Calls[s.Name] = c; init != nil {
			of.Next[s.Name] = init
		}
		for _, g := range groups {
			for _, statistic := range spec.ColumnInputs(nil) {
				if g.has(s.Name) {
					of.tensors[network.InputOf(s.Name, statistic.Name)] = g.columnsName(statistic.Name)
				}
			}
		}
	}
	p.widen(in)
	computed, out := p.inlineModel(b, of, in), stage.Values{}
	for output, tensor := range results {
		if x, ok := computed[output]; ok {
			out[tensor] = x
		}
	}
	return out
}

func (c *Compiled) initOptimizers(t stage.Tensors, rules []cage.Rule) error {
	jobs, err := cage.Jobs(rules, cage.Initializing)
	if err != nil {
		return err
	}
	if len(jobs) > 0 {
		u, err := stage.CompileUpdate(c.dev, "init", jobs, c.plan.dividedTensors())
		if err != nil {
			return err
		}
		defer u.Close()
		if _, err := u.Run(t, nil); err != nil {
			return err
		}
	}
	for _, rule := range rules {
		own := len(rule.Optimizer.State)
		if rule.Optimizer.Opaque { // these start at zero, too
			own = 0
		}
		for _, st := range rule.State()[own:] {
			name := program.KindState.PartOf(rule.Name, st.Name)
			if t[name] != nil {
				continue
			}
			zero := func(data []float32) error { clear(data); return nil }
			if t[name], err = c.fill(name, st.Shape, zero); err != nil {
				return err
			}
		}
	}
	return nil
}
