package step

import (
	"fmt"
	"maps"
	"slices"

	"github.com/cage-qat/cage/host/engine"
	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/host/refresh"
	"github.com/cage-qat/cage/host/update"
	"github.com/cage-qat/cage/sdk/program"
)

// State is what training carries from step to step, on the device: everything that is
// trained and the optimizers' states, by the names that they have in checkpoints. What is
// computed from it beside the steps is in host memory.
type State struct {
	Tensors update.Tensors
	// Pending are the refreshes whose results are not in place yet. They are among the
	// tensors of [Compiled.Stored].
	Pending refresh.Pending
	// torn is set while a step replaces buffers, and stays set when the step fails meanwhile.
	torn bool
	held <-chan struct{} // see Hold; nil where nothing is read
}

// Hold lets the next step wait until done is closed before it replaces a tensor. Until then
// what [Compiled.Stored] lists can be read, while the step computes its gradients. A step
// that is one executable waits before it starts.
func (s *State) Hold(done <-chan struct{}) { s.held = done }

// replace waits for those who read the state, and notes that its tensors are now replaced.
func (s *State) replace() {
	if s.held != nil {
		<-s.held
		s.held = nil
	}
	s.torn = true
}

// Consistent tells whether the state is that after a whole number of steps. A step that failed
// while it replaced parameters and states left some of both, and buffers that are gone.
func (s *State) Consistent() bool { return !s.torn }

// Param is the buffer of a trained tensor.
func (s *State) Param(tensor string) *engine.Buffer { return s.Tensors[update.Param(tensor)] }

// takeBack takes the tensors of a state from t, which a step worked on, and frees the
// others.
func takeBack(state, t update.Tensors) {
	for name, b := range t {
		if _, own := state[name]; own {
			state[name] = b
		} else {
			b.Finalize()
		}
	}
}

// NewState draws the parameters from the seed, initialises the quantizers' trained
// parameters from them and from a batch of tokens, [batch, context+1], and runs the
// optimizers' init programs. The tokens are needed only where activations have
// trained parameters.
func (c *Compiled) NewState(seed uint64, tokens []int32) (*State, error) {
	return c.newState(tokens, func(p model.Param) ([]float32, error) { return p.Init(seed), nil })
}

// NewStateFrom is NewState with parameters that are loaded instead of drawn.
func (c *Compiled) NewStateFrom(load LoadFunc, tokens []int32) (*State, error) {
	return c.newState(tokens, func(p model.Param) ([]float32, error) { return load.shaped(update.Param(p.Name), p.Dims) })
}

func (c *Compiled) newState(tokens []int32, values func(model.Param) ([]float32, error)) (*State, error) {
	s := &State{Tensors: update.Tensors{}}
	for _, init := range []func() error{
		func() error { return c.initParams(s.Tensors, values) },
		func() error { return c.initTrainedWeights(s.Tensors) },
		func() error { return c.initTrainedActivations(s.Tensors, tokens) },
		func() error { return c.initOptimizers(s.Tensors) },
	} {
		if err := init(); err != nil {
			s.Close()
			return nil, err
		}
	}
	return s, nil
}

func (c *Compiled) initParams(t update.Tensors, values func(model.Param) ([]float32, error)) error {
	for _, p := range c.plan.Model.Params() {
		data, err := values(p)
		if err == nil {
			t[update.Param(p.Name)], err = engine.Upload(c.dev, data, p.Dims...)
		}
		if err != nil {
			return fmt.Errorf("initialise %s: %w", p.Name, err)
		}
	}
	return nil
}

func (c *Compiled) initTrainedWeights(t update.Tensors) error {
	if len(c.plan.trainedWeights()) == 0 {
		return nil
	}
	return c.runOnce(c.plan.initStage(), t)
}

// runOnce compiles a stage, runs it on t and frees it.
func (c *Compiled) runOnce(s stage, t update.Tensors) error {
	e, err := s.compile(c.dev)
	if err != nil {
		return err
	}
	defer e.exec.Close()
	return e.run(t)
}

func (c *Compiled) initTrainedActivations(t update.Tensors, tokens []int32) error {
	if len(c.plan.trainedActivations()) == 0 {
		return nil
	}
	batch, err := c.uploadBatch(tokens)
	if err != nil {
		return fmt.Errorf("calibration: %w", err)
	}
	defer batch.Finalize()
	have := maps.Clone(t)
	have[tokensName] = batch
	if err := c.runQuantize(have); err != nil {
		return err
	}
	err = c.runOnce(c.plan.calibrateStage(), have)
	for _, tr := range c.plan.trainedActivations() {
		if b := have[update.Param(tr.Name)]; b != nil {
			t[update.Param(tr.Name)] = b
		}
	}
	takeBack(t, have)
	return err
}

// initOptimizers runs the optimizers' init programs, all at once. States of the method
// itself start at zero.
func (c *Compiled) initOptimizers(t update.Tensors) error {
	jobs := update.Inits(c.plan.Rules)
	if len(jobs) > 0 {
		u, err := update.Compile(c.dev, "init", jobs, update.Options{})
		if err != nil {
			return err
		}
		defer u.Close()
		if _, err := u.Run(t, nil); err != nil {
			return err
		}
	}
	for _, rule := range c.plan.Rules {
		for _, st := range rule.State()[len(rule.Optimizer.State):] {
			zeros, err := engine.Upload(c.dev, make([]float32, size(st.Shape)), st.Shape...)
			if err != nil {
				return err
			}
			t[update.State(rule.Name, st.Name)] = zeros
		}
	}
	return nil
}

func size(shape []int) int { return int(program.FloatType(shape...).Size()) }

// stateTensors lists the tensors of a state in the order of checkpoints.
func (p *Plan) stateTensors() []Tensor {
	var list []Tensor
	for i, t := range p.tensors() {
		list = append(list, Tensor{Name: update.Param(t.Name), Dims: t.Dims})
		for _, st := range p.Rules[i].State() {
			list = append(list, Tensor{Name: update.State(t.Name, st.Name), Dims: st.Shape})
		}
	}
	return list
}

// Stored is a tensor of a state as a checkpoint keeps it.
type Stored struct {
	Name string
	Dims []int
	// Read returns the elements, to be read only, and before the next step replaces them
	// ([State.Hold]): on the CPU they are in the state's own memory.
	Read func() ([]float32, error)
}

// Stored lists the tensors of a state, for a checkpoint, with the results of refreshes
// that are not in place yet, for which it waits ([State.Pending]).
func (c *Compiled) Stored(s *State) []Stored {
	var out []Stored
	for _, t := range c.plan.stateTensors() {
		b := s.Tensors[t.Name]
		out = append(out, Stored{t.Name, t.Dims, func() ([]float32, error) { return engine.View[float32](b) }})
	}
	for _, r := range s.Pending.Results() {
		out = append(out, Stored{r.Name, r.Dims, func() ([]float32, error) { return r.Data, nil }})
	}
	return out
}

// LoadFunc loads a tensor of a checkpoint by name.
type LoadFunc func(name string) (Tensor, error)

// ParamName is the name that a parameter of the model has in checkpoints.
func ParamName(param string) string { return update.Param(param) }

// TrainedName is the name that a trained parameter of a quantizer has in checkpoints, by the weight or site.
func TrainedName(site, name string) string { return update.Param(update.Trained(site, name)) }

// LoadParams loads the parameters of a model and nothing else. Their elements are those that values returns by the name of the
// parameter; they are used before the next call.
func LoadParams(m model.Model, values func(param string) ([]float32, error)) LoadFunc {
	params := map[string]model.Param{}
	for _, p := range m.Params() {
		params[update.Param(p.Name)] = p
	}
	return func(name string) (Tensor, error) {
		p, ok := params[name]
		if !ok {
			return Tensor{}, fmt.Errorf("%s is no parameter of the model", name)
		}
		data, err := values(p.Name)
		return Tensor{Name: name, Dims: p.Dims, Data: data}, err
	}
}

// shaped loads a tensor and checks its shape.
func (load LoadFunc) shaped(name string, dims []int) ([]float32, error) {
	t, err := load(name)
	if err == nil && !slices.Equal(t.Dims, dims) {
		err = fmt.Errorf("%s has shape %v, the run needs %v", name, t.Dims, dims)
	}
	return t.Data, err
}

// RestoreRefreshes gives a state the refreshes that were pending when a checkpoint was
// taken, with their results. A refresh that the plan does not have, or a tensor that is
// missing or of another shape, is an error.
func (c *Compiled) RestoreRefreshes(s *State, list []refresh.Record, load LoadFunc) error {
	return c.refresher.Restore(&s.Pending, list, load.shaped)
}

// Upload makes a state from the tensors of a checkpoint. A tensor that is missing,
// or has another shape, is an error.
func (c *Compiled) Upload(load LoadFunc) (*State, error) {
	return c.upload(c.plan.stateTensors(), load)
}

// UploadParams makes a state with what is trained from a checkpoint and without
// optimizer state, for evaluation.
func (c *Compiled) UploadParams(load LoadFunc) (*State, error) {
	list := c.plan.tensors()
	for i := range list {
		list[i].Name = update.Param(list[i].Name)
	}
	return c.upload(list, load)
}

func (c *Compiled) upload(list []Tensor, load LoadFunc) (*State, error) {
	s := &State{Tensors: update.Tensors{}}
	for _, t := range list {
		data, err := load.shaped(t.Name, t.Dims)
		if err == nil {
			s.Tensors[t.Name], err = engine.Upload(c.dev, data, t.Dims...)
		}
		if err != nil {
			s.Close()
			return nil, err
		}
	}
	return s, nil
}

// Close frees all buffers and ends what is computed beside the steps.
func (s *State) Close() {
	s.Pending.Close()
	for _, b := range s.Tensors {
		b.Finalize()
	}
}
