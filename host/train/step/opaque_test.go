package step_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/cage-qat/cage/host/testing/testrun"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/step"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/spec"
)

// heavyBall is an optimizer that computes m ← m/2 + g, u = m + x as a program.
type heavyBall struct{ descent }

func (heavyBall) Init(b *program.Builder, _ program.Value, t sdk.Tensor) (sdk.State, error) {
	return sdk.State{"m": b.Zeros(t.Shape...)}, nil
}

func (heavyBall) Update(
	_ *program.Builder, in sdk.UpdateInput, _ sdk.Tensor,
) (program.Value, sdk.State, error) {
	m := in.State["m"].Scale(0.5).Add(in.Gradient)
	return m.Add(in.X), sdk.State{"m": m}, nil
}

// opaqueBall is heavyBall as an opaque optimizer.
type opaqueBall struct{}

func (opaqueBall) Describe() sdk.Description { return sdk.Description{Name: "ball"} }

func (opaqueBall) State(t sdk.Tensor) ([]spec.Tensor, error) {
	return []spec.Tensor{{Name: "m", Shape: t.Shape}}, nil
}

func (opaqueBall) Step(in sdk.OpaqueStep, _ sdk.Tensor) error {
	for i, g := range in.Gradient {
		m := float32(in.State["m"][i]*0.5) + g
		in.Next["m"][i], in.Direction[i] = m, m+in.X[i]
	}
	return nil
}

// inProcess runs opaqueBall in this process, on ordinary memory.
type inProcess struct {
	tensors map[string]*sdk.OpaqueStep
	err     error // returned by Step if not nil
	steps   int
}

func (p *inProcess) Buffers(tensor string) (in, out map[string][]float32) {
	s, m := p.tensors[tensor], program.KindState.PartOf(tensor, "m")
	return map[string][]float32{program.KindOpaqueX.Of(tensor): s.X,
			program.KindGivenGradient.Of(tensor): s.Gradient, m: s.State["m"]},
		map[string][]float32{program.KindDirection.Of(tensor): s.Direction, m: s.Next["m"]}
}

func (p *inProcess) Step(int, int, float64, float64) error {
	if p.err != nil {
		return p.err
	}
	p.steps++
	for _, in := range p.tensors {
		if err := (opaqueBall{}).Step(*in, sdk.Tensor{}); err != nil {
			return err
		}
	}
	return nil
}

// opaquePlan returns the plan with opaqueBall as the optimizer of all tensors, in this process.
func opaquePlan(plan step.Plan) (step.Plan, *inProcess) {
	p := &inProcess{tensors: map[string]*sdk.OpaqueStep{}}
	plan.Opaque = map[string]step.Opaque{}
	for _, r := range plan.Rules {
		memory := func() []float32 { return make([]float32, program.FloatType(r.Shape...).Size()) }
		p.tensors[r.Name] = &sdk.OpaqueStep{X: memory(), Gradient: memory(), Direction: memory(),
			State: map[string][]float32{"m": memory()}, Next: map[string][]float32{"m": memory()}}
		plan.Opaque[r.Name] = p
	}
	return plan, p
}

// TestOpaque checks that an opaque optimizer computes the same bits as its program, in tiles, in
// graphs and through a checkpoint. A failed step keeps the state and can be repeated.
func TestOpaque(t *testing.T) {
	for i, overrides := range [][]string{
		{"train.clip=0.5", "train.weight_decay=0.1"}, {"train.accumulate=2", `method.form="coupled"`},
		{`train.decay="last"`, "train.weight_decay=0.1"},
	} {
		if testing.Short() && i != 1 {
			continue
		}
		for name, start := range map[string]func(testing.TB, *config.Config, step.Plan) compiledStep{
			"by device": started, "graph": inGraphs} {
			cfg := sgdConfig(t, overrides...)
			plan := planOf(t, cfg, grid{}, heavyBall{})
			plan.Dispatch = step.Chain
			byProgram := start(t, cfg, plan)
			plan = planOf(t, cfg, grid{}, sdk.Opaque(opaqueBall{}))
			plan.Dispatch = step.Single // it runs as the chain nevertheless
			plan, process := opaquePlan(plan)
			byProcess := start(t, cfg, plan)
			for i := range 5 {
				set := step.Settings{Step: i + 1, Steps: 5, Rate: 1e-3, NextRate: 1e-3, Lambda: float64(i / 3),
					Statistics: i == 4}
				tokens := batches(cfg, uint64(i), cfg.Train.Accumulate)
				switch i {
				case 2:
					byProcess.State = throughCheckpoint(t, byProcess.Compiled, byProcess.State)
				case 3:
					before := testrun.Download(t, byProcess.Compiled, byProcess.State)
					process.err = errors.New("no luck")
					if _, err := byProcess.Step(byProcess.State, tokens, set); !errors.Is(err, process.err) ||
						!byProcess.State.Consistent() {
						t.Errorf("got %v, the state is consistent: %t", err, byProcess.State.Consistent())
					}
					process.err = nil
					sameBits(t, "after a failed step", before,
						testrun.Download(t, byProcess.Compiled, byProcess.State))
				}
				a, b := run(t, byProgram.Compiled, byProgram.State, tokens, set),
					run(t, byProcess.Compiled, byProcess.State, tokens, set)
				sameOutcome(t, i+1, a, b)
			}
			if process.steps != 5 {
				t.Errorf("%d steps", process.steps)
			}
			sameBits(t, fmt.Sprint(overrides, name),
				testrun.Download(t, byProgram.Compiled, byProgram.State),
				testrun.Download(t, byProcess.Compiled, byProcess.State))
		}
	}
}

// TestOpaqueAndOthers checks that a plan is refused if it lacks the process of an opaque optimizer.
func TestOpaqueAndOthers(t *testing.T) {
	plan := planOf(t, sgdConfig(t), nil, sdk.Opaque(opaqueBall{}))
	if _, err := step.Compile(testrun.Device(t), plan); err == nil {
		t.Error("a plan without the processes of its optimizers was accepted")
	}
	plan, _ = opaquePlan(plan)
	delete(plan.Opaque, slices.Sorted(maps.Keys(plan.Opaque))[0])
	if _, err := step.Compile(testrun.Device(t), plan); err == nil {
		t.Error("a plan without one of them was accepted")
	}
}
