package step

import (
	"fmt"
	"maps"

	"golang.org/x/sync/errgroup"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/update"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/sdk/program"
)

// NewState draws the parameters from the seed, initializes the trained parameters of
// quantizers from them and from a batch of tokens, [batch, context+1], and runs the
// optimizers' init programs. The tokens are needed only if quantizers of activations have
// trained parameters.
func (c *Compiled) NewState(seed uint64, tokens []int32) (*State, error) {
	workers := 1
	if c.dev.SharesMemory() { // elsewhere each would have a copy in host memory
		workers = c.dev.Workers()
	}
	return c.newState(tokens, workers, func(p architecture.Param) (*engine.Buffer, error) {
		return engine.Fill(c.dev, p.Dims, func(values []float32) error {
			p.Draw(seed, values)
			return nil
		})
	})
}

// NewStateFrom is [Compiled.NewState] with parameters that are loaded instead of drawn.
func (c *Compiled) NewStateFrom(load LoadFunc, tokens []int32) (*State, error) {
	return c.newState(tokens, 1, func(p architecture.Param) (*engine.Buffer, error) { return c.load(load, update.Param(p.Name), p.Dims) })
}

// StartParams makes a state for evaluation with quantizers for which the parameters were not trained. The parameters
// are loaded; the trained parameters of quantizers get the values with which a training would begin. For quantizers of
// activations these would depend on a text, so trained parameters there are an error.
func (c *Compiled) StartParams(load LoadFunc) (*State, error) {
	if list := c.plan.trainedActivations(); len(list) > 0 {
		return nil, fmt.Errorf("%s is a parameter that is trained: this quantizer of activations does nothing useful before", list[0].Name)
	}
	s := &State{Tensors: update.Tensors{}}
	err := c.initParams(s.Tensors, 1, func(p architecture.Param) (*engine.Buffer, error) { return c.load(load, update.Param(p.Name), p.Dims) })
	if err == nil {
		err = c.initTrainedWeights(s.Tensors)
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// newState makes the parameters with param, in as many goroutines as there are workers.
func (c *Compiled) newState(tokens []int32, workers int, param func(architecture.Param) (*engine.Buffer, error)) (*State, error) {
	s := &State{Tensors: update.Tensors{}}
	for _, init := range []func() error{
		func() error { return c.initParams(s.Tensors, workers, param) },
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

func (c *Compiled) initParams(t update.Tensors, workers int, param func(architecture.Param) (*engine.Buffer, error)) error {
	params := c.plan.Model.Params()
	made := make([]*engine.Buffer, len(params))
	var group errgroup.Group
	group.SetLimit(workers)
	for i, p := range params {
		group.Go(func() (err error) {
			if made[i], err = param(p); err != nil {
				return fmt.Errorf("initialise %s: %w", p.Name, err)
			}
			return nil
		})
	}
	err := group.Wait()
	for i, p := range params {
		if made[i] != nil { // also after an error: who has t frees them
			t[update.Param(p.Name)] = made[i]
		}
	}
	return err
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
	keepState(t, have)
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
			zeros, err := engine.Zeros(c.dev, st.Shape...)
			if err != nil {
				return err
			}
			t[update.State(rule.Name, st.Name)] = zeros
		}
	}
	return nil
}

func size(shape []int) int { return int(program.FloatType(shape...).Size()) }
