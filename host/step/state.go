package step

import (
	"fmt"
	"slices"

	"github.com/cage-qat/cage/host/cage"
	"github.com/cage-qat/cage/host/engine"
	"github.com/cage-qat/cage/host/lower"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/gomlx/gomlx/core/graph"
)

// State is what training carries from step to step, on the device: everything that
// is trained, the model's parameters first and then the quantizers', and the
// optimizer's state of each, in the order of its names. What is computed of it beside
// the steps is in host memory.
type State struct {
	Params    []*engine.Buffer
	Optimizer [][]*engine.Buffer
	beside    beside
	// torn is set while a step replaces buffers, and stays so when it fails meanwhile.
	torn bool
}

// Whole tells whether the state is that after a whole number of steps. A step that failed
// while it replaced parameters and states left some of both, and buffers that are gone.
func (s *State) Whole() bool { return !s.torn }

// NewState draws the parameters from the seed, initialises the quantizers' trained
// parameters from them and from a batch of tokens, [batch, context+1], and runs the
// optimizers' init programs. The tokens are needed only where activations have
// trained parameters.
func (k *Kernels) NewState(seed uint64, tokens []int32) (*State, error) {
	s := &State{}
	for _, p := range k.plan.Model.Params() {
		b, err := engine.Upload(k.dev, p.Init(seed), p.Dims...)
		if err != nil {
			s.Close()
			return nil, fmt.Errorf("initialise %s: %w", p.Name, err)
		}
		s.Params = append(s.Params, b)
	}
	for _, init := range []func(*State) error{
		k.initTrainedWeights,
		func(s *State) error { return k.initTrainedActivations(s, tokens) },
		k.initOptimizers,
	} {
		if err := init(s); err != nil {
			s.Close()
			return nil, err
		}
	}
	return s, nil
}

func (k *Kernels) initTrainedWeights(s *State) error {
	if len(k.plan.trainedWeights()) == 0 {
		return nil
	}
	exec, err := k.once("initial quantizer parameters", k.plan.initGraph)
	if err != nil {
		return err
	}
	out, err := exec.Run(pick(s.Params, k.plan.quantized()), nil)
	s.Params = append(s.Params, out...)
	return err
}

func (k *Kernels) initTrainedActivations(s *State, tokens []int32) error {
	if len(k.plan.trainedActivations()) == 0 {
		return nil
	}
	exec, err := k.once("calibration", k.plan.calibrateGraph)
	if err != nil {
		return err
	}
	t, err := k.uploadBatch(tokens)
	if err != nil {
		return fmt.Errorf("calibration: %w", err)
	}
	defer t.Finalize()
	q, err := k.runQuantize(s)
	if err != nil {
		return err
	}
	defer q.close()
	out, err := exec.Run(append(k.weights(s, q), t), nil)
	s.Params = append(s.Params, out...)
	return err
}

func (k *Kernels) initOptimizers(s *State) error {
	specs := k.plan.tensorSpecs()
	for i, rule := range k.plan.Rules {
		s.Optimizer = append(s.Optimizer, nil)
		if err := k.initOptimizer(s, i, specs[i], rule); err != nil {
			return err
		}
		for _, t := range rule.State()[len(rule.Optimizer.State):] {
			zeros, err := engine.Upload(k.dev, make([]float32, size(t.Shape)), t.Shape...)
			if err != nil {
				return err
			}
			s.Optimizer[i] = append(s.Optimizer[i], zeros)
		}
	}
	return nil
}

// initOptimizer runs the init program of one optimizer, if it has one.
func (k *Kernels) initOptimizer(s *State, i int, spec engine.Spec, rule cage.Rule) error {
	if rule.Optimizer.Init == nil {
		return nil
	}
	init, err := k.dev.Compile("init "+rule.Name, []engine.Spec{spec}, func(g *graph.Graph, in []*graph.Node) []*graph.Node {
		return lower.Outputs(g, rule.Optimizer.Init, in)
	})
	if err != nil {
		return err
	}
	defer init.Close()
	s.Optimizer[i], err = init.Run(s.Params[i:i+1], nil)
	return err
}

func size(shape []int) int { return int(program.FloatType(shape...).Size()) }

// Tensor is a named float32 tensor in host memory.
type Tensor struct {
	Name string
	Dims []int
	Data []float32
}

// Names of tensors in checkpoints.
const (
	paramPrefix = "param/"
	statePrefix = "state/"
)

// tensors visits every tensor of a state with its name and dimensions; get returns the place of its buffer.
func (k *Kernels) tensors(s *State, visit func(name string, dims []int, at **engine.Buffer) error) error {
	for i, spec := range k.plan.tensorSpecs() {
		if err := visit(paramPrefix+spec.Name, spec.Shape.Dimensions, &s.Params[i]); err != nil {
			return err
		}
		for j, t := range k.plan.Rules[i].State() {
			if err := visit(statePrefix+spec.Name+"/"+t.Name, t.Shape, &s.Optimizer[i][j]); err != nil {
				return err
			}
		}
	}
	return nil
}

// Download copies a state to host memory, for a checkpoint, with the results of
// refreshes that are not in place yet, for which it waits ([Kernels.PendingRefreshes]).
func (k *Kernels) Download(s *State) ([]Tensor, error) {
	var out []Tensor
	err := k.tensors(s, func(name string, dims []int, at **engine.Buffer) error {
		data, err := engine.Download[float32](*at)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		out = append(out, Tensor{name, dims, data})
		return nil
	})
	if err != nil {
		return nil, err
	}
	return append(out, k.pendingTensors(s)...), nil
}

// Upload makes a state from the tensors of a checkpoint. A tensor that is missing,
// or has another shape, is an error; load is asked for each by name.
func (k *Kernels) Upload(load func(name string) (Tensor, error)) (*State, error) {
	s := &State{Params: make([]*engine.Buffer, len(k.plan.Rules)), Optimizer: make([][]*engine.Buffer, len(k.plan.Rules))}
	for i, r := range k.plan.Rules {
		s.Optimizer[i] = make([]*engine.Buffer, len(r.State()))
	}
	err := k.tensors(s, func(name string, dims []int, at **engine.Buffer) error {
		t, err := load(name)
		if err != nil {
			return err
		}
		if !slices.Equal(t.Dims, dims) {
			return fmt.Errorf("%s has shape %v, the run needs %v", name, t.Dims, dims)
		}
		*at, err = engine.Upload(k.dev, t.Data, dims...)
		return err
	})
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// UploadParams makes a state with what is trained from a checkpoint and without
// optimizer state, for evaluation.
func (k *Kernels) UploadParams(load func(name string) (Tensor, error)) (*State, error) {
	s := &State{}
	for _, spec := range k.plan.tensorSpecs() {
		dims := spec.Shape.Dimensions
		t, err := load(paramPrefix + spec.Name)
		if err == nil && !slices.Equal(t.Dims, dims) {
			err = fmt.Errorf("%s has shape %v, the run needs %v", spec.Name, t.Dims, dims)
		}
		var b *engine.Buffer
		if err == nil {
			b, err = engine.Upload(k.dev, t.Data, dims...)
		}
		if err != nil {
			s.Close()
			return nil, err
		}
		s.Params = append(s.Params, b)
	}
	return s, nil
}

// replace puts new buffers, in order, in the place of all that were given away, and
// returns the rest.
func (s *State) replace(out []*engine.Buffer) (rest []*engine.Buffer) {
	n := len(s.Params)
	s.Params, out = out[:n:n], out[n:]
	for i := range s.Optimizer {
		m := len(s.Optimizer[i])
		s.Optimizer[i], out = out[:m:m], out[m:]
	}
	return out
}

// Close frees all buffers and ends what is computed beside the steps.
func (s *State) Close() {
	s.beside.close()
	engine.FinalizeAll(s.Params...)
	for _, list := range s.Optimizer {
		engine.FinalizeAll(list...)
	}
}
