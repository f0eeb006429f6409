package step_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/testing/testdevice"
	"github.com/cage-qat/cage/host/testing/testrun"
	"github.com/cage-qat/cage/host/train/step"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
)

// eighths is a quantizer whose program rounds to eighths of the largest magnitude.
type eighths struct{}

func (eighths) Describe() sdk.Description { return sdk.Description{Name: "eighths"} }

func (eighths) Quantize(_ *program.Builder, x program.Value, _ sdk.Site) (sdk.Quantized, error) {
	return roundTo(x, x.Abs().MaxAll()), nil
}

// roundTo rounds x to eighths of largest.
func roundTo(x, largest program.Value) sdk.Quantized {
	s := largest.Scale(1.0 / 8)
	return sdk.Quantized{Value: x.Div(s).Round().Mul(s)}
}

// searching is eighths with a search for the largest magnitude of weights, which counts its calls.
type searching struct{ every int }

func (searching) Describe() sdk.Description { return sdk.Description{Name: "searching"} }

func (q searching) SearchState(sdk.Site) ([]sdk.StateTensor, int, error) {
	return []sdk.StateTensor{{Name: "largest"}, {Name: "count", Shape: []int{2}}}, q.every, nil
}

func (searching) Quantize(
	_ *program.Builder, x program.Value, site sdk.Site,
) (sdk.Quantized, error) {
	if site.Role != sdk.RoleWeight {
		return roundTo(x, x.Abs().MaxAll()), nil
	}
	return roundTo(x, site.State["largest"]), nil
}

func (searching) Search(in sdk.SearchInput, _ sdk.Site) error {
	largest := float32(0)
	for _, v := range in.X {
		largest = max(largest, v, -v)
	}
	in.Next["largest"][0] = largest
	in.Next["count"][0], in.Next["count"][1] = in.State["count"][0]+1, float32(in.Step)
	return nil
}

// searchHere runs searches in this process, on ordinary memory.
type searchHere struct {
	searching
	weights map[string]*sdk.SearchInput
	err     error // returned by Search if not nil
}

func (s *searchHere) Buffers(weight string) (in, out map[string][]float32) {
	w := s.weights[weight]
	in, out = map[string][]float32{program.KindParam.Of(weight): w.X}, map[string][]float32{}
	for state := range w.State {
		name := program.KindQuantizerState.PartOf(weight, state)
		in[name], out[name] = w.State[state], w.Next[state]
	}
	return in, out
}

func (s *searchHere) Search(ctx context.Context, step int, weights []string) error {
	for _, w := range weights {
		s.weights[w].Step = step
		if err := errors.Join(ctx.Err(), s.err,
			s.searching.Search(*s.weights[w], sdk.Site{})); err != nil {
			return err
		}
	}
	return nil
}

// searchPlan returns a plan whose weight quantizers search in this process.
func searchPlan(plan step.Plan) (step.Plan, *searchHere) {
	s := &searchHere{weights: map[string]*sdk.SearchInput{}}
	plan.Search = map[string]step.Search{}
	for _, r := range plan.Rules {
		if r.Quantizer == nil {
			continue
		}
		memory := func(shape []int) []float32 {
			return make([]float32, program.FloatType(shape...).Size())
		}
		in := &sdk.SearchInput{X: memory(r.Shape), State: map[string][]float32{},
			Next: map[string][]float32{}}
		for _, st := range r.Quantizer.State {
			in.State[st.Name], in.Next[st.Name] = memory(st.Shape), memory(st.Shape)
		}
		s.weights[r.Name], plan.Search[r.Name] = in, s
	}
	return plan, s
}

// TestSearch checks that a search after each step gives the same bits as a quantizer that computes
// the same in its program, in training and evaluation, as a chain and as one executable, through a
// checkpoint, and after failed searches.
func TestSearch(t *testing.T) {
	const steps = 5
	// In the variant "paper" the correction takes Q at another point, with the state of x; so λ is 0.
	for lambda, overrides := range map[float64][]string{0: {"train.weight_decay=0.1"},
		1: {"train.accumulate=2", `method.form="coupled"`}} {
		if testing.Short() && lambda == 0 {
			continue
		}
		for _, dispatch := range []step.Dispatch{step.Chain, step.Single} {
			t.Run(fmt.Sprint(overrides, dispatch), func(t *testing.T) {
				cfg := sgdConfig(t, overrides...)
				compiled := func(plan step.Plan) compiledStep {
					plan.Dispatch = dispatch
					k := inGraphs(t, cfg, plan)
					if err := k.Prepare(true); err != nil {
						t.Fatal(err)
					}
					return k
				}
				byProgram := compiled(planOf(t, cfg, eighths{}, descent{}))
				plan, search := searchPlan(planOf(t, cfg, searching{1}, descent{}))
				bySearch := compiled(plan)
				for i := 1; i <= steps; i++ {
					set := step.Settings{Step: i, Steps: steps, Rate: 0.1, NextRate: 0.1,
						Lambda: lambda * float64(i/3), Statistics: i == 4}
					tokens := batches(cfg, uint64(i), cfg.Train.Accumulate)
					a, b := run(t, byProgram.Compiled, byProgram.State, tokens, set),
						run(t, bySearch.Compiled, bySearch.State, tokens, set)
					sameOutcome(t, i, a, b)
					if i == 2 { // the search fails; after a checkpoint it is repeated
						before := testrun.Download(t, bySearch.Compiled, bySearch.State)
						search.err = errors.New("no luck")
						if err := bySearch.Search(t.Context(), bySearch.State, i); !errors.Is(err, search.err) ||
							!bySearch.State.Consistent() || !bySearch.State.Unsearched {
							t.Errorf("got %v, the state is consistent: %t, unsearched: %t", err,
								bySearch.State.Consistent(), bySearch.State.Unsearched)
						}
						search.err = nil
						sameBits(t, "after a failed search", before,
							testrun.Download(t, bySearch.Compiled, bySearch.State))
						bySearch.State = throughCheckpoint(t, bySearch.Compiled, bySearch.State)
						bySearch.State.Unsearched = true // as when a run is resumed
					}
					for range 2 { // the second time there is nothing to do
						if err := bySearch.Search(t.Context(), bySearch.State, i); err != nil {
							t.Fatal(err)
						}
					}
					if x, y := evaluated(t, byProgram.Compiled, byProgram.State, tokens[0]), evaluated(t,
						bySearch.Compiled, bySearch.State, tokens[0]); !slices.Equal(x, y) {
						t.Errorf("step %d: evaluation gives %v and %v", i, x, y)
					}
				}
				after := testrun.Download(t, bySearch.Compiled, bySearch.State)
				if got, want := after[program.KindQuantizerState.PartOf("layers.0.mlp.down",
					"count")], []float32{steps + 1, steps}; !slices.Equal(got, want) {
					t.Errorf("searches and the step of the last are %v, want %v", got, want)
				}
				for name := range after {
					if len(name) > 5 && name[:5] == "kept/" {
						delete(after, name)
					}
				}
				sameBits(t, "after the last step", testrun.Download(t, byProgram.Compiled, byProgram.State),
					after)
			})
		}
	}
}

// TestSearchEvery checks that the state stays between searches, also in skipped steps.
func TestSearchEvery(t *testing.T) {
	cfg := sgdConfig(t)
	plan, _ := searchPlan(planOf(t, cfg, searching{3}, descent{}))
	c := started(t, cfg, plan)
	for i, want := range [][]float32{{1, 0}, {1, 0}, {2, 3}, {2, 3}, {2, 3}, {3, 6}} {
		tokens := batches(cfg, uint64(i), 1)
		if i == 3 {
			tokens[0][0] = vocab // makes the loss NaN
		}
		if res := run(t, c.Compiled, c.State, tokens,
			step.Settings{Step: i + 1, Steps: 6, Rate: 0.1}); res.Skipped != (i == 3) {
			t.Fatalf("step %d: skipped %t", i+1, res.Skipped)
		}
		if err := c.Search(t.Context(), c.State, i+1); err != nil {
			t.Fatal(err)
		}
		if got := testrun.Download(t, c.Compiled,
			c.State)[program.KindQuantizerState.PartOf("layers.0.mlp.down", "count")]; !slices.Equal(got,
			want) {
			t.Errorf("after step %d: searches and the step of the last are %v, want %v", i+1, got, want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c.State.Unsearched = true
	if err := c.Search(ctx, c.State, 9); !errors.Is(err, context.Canceled) || !c.State.Unsearched {
		t.Errorf("an interrupted search: %v, unsearched %t", err, c.State.Unsearched)
	}
}

// TestFirstSearchInterrupted checks that ending the context stops the search before the first step.
func TestFirstSearchInterrupted(t *testing.T) {
	cfg := sgdConfig(t)
	plan, _ := searchPlan(planOf(t, cfg, searching{1}, descent{}))
	c := compileOn(t, testdevice.OpenCPU(t, engine.Options{}), plan)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.NewState(ctx, 1, batches(cfg, 1, 1)[0]); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// TestSearchNeedsItsProcess checks that there is no initial state without a search.
func TestSearchNeedsItsProcess(t *testing.T) {
	cfg := sgdConfig(t)
	c := compileOn(t, testdevice.OpenCPU(t, engine.Options{}), planOf(t, cfg, searching{1}, descent{}))
	if _, err := c.NewState(t.Context(), 1, batches(cfg, 1, 1)[0]); err == nil {
		t.Error("a state was made without a search")
	}
}
