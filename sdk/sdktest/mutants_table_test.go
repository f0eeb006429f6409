package sdktest_test

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/cage-qat/cage/internal/testing/testlevel"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/sdktest"
)

func TestGood(t *testing.T) {
	t.Run("rows", func(t *testing.T) {
		sdktest.Quantizer(t, good(), sdktest.Claim(sdk.Claim{Name: sdk.ClaimIdempotent}))
	})
	t.Run("with a grid", func(t *testing.T) {
		sdktest.Quantizer(t, broken(func(q *rows) {
			q.grid = func(bits int) sdk.Grid { return sdk.Integers(1-1<<(bits-1), 1<<(bits-1)-1, 0) }
		}))
	})
	t.Run("clipping", func(t *testing.T) { sdktest.Quantizer(t, clipping{}) })
	t.Run("packed", func(t *testing.T) { sdktest.Quantizer(t, goodPacked()) })
	t.Run("learned", func(t *testing.T) { sdktest.Quantizer(t, learned{}) })
	t.Run("keys by columns", func(t *testing.T) {
		sdktest.Quantizer(t, keysByColumn{},
			sdktest.Claim(sdk.Claim{Name: sdk.ClaimKeyScope, Value: sdk.ScopeColumn}))
	})
	t.Run("pushed", func(t *testing.T) { sdktest.Quantizer(t, pushed{}) })
	t.Run("kept", func(t *testing.T) { sdktest.Quantizer(t, kept{constraint: positive}) })
	t.Run("smoothing", func(t *testing.T) { sdktest.Quantizer(t, smoothing{}) })
	t.Run("corrected", func(t *testing.T) { sdktest.Optimizer(t, corrected{}) })
	t.Run("momentum", func(t *testing.T) { sdktest.Optimizer(t, momentum{}) })
	t.Run("sampling", func(t *testing.T) { sdktest.Optimizer(t, sampling{}) })
	t.Run("whitened", func(t *testing.T) { sdktest.Optimizer(t, whitened{}) })
}

// broken returns rows with one mistake.
func broken(change func(*rows)) rows {
	q := good()
	change(&q)
	return q
}

// firstRow uses the scale of the first row for all rows, as if an index were missing.
func firstRow(s, _ program.Value) program.Value {
	shape := s.Shape()
	return s.Slice(make([]int, len(shape)), []int{1, 1}, []int{1, 1}).Broadcast(shape, []int{0, 1})
}

// byColumn uses the largest entry of a column instead of a row, byTensor that of the tensor.
func byColumn(q *rows) {
	q.most = func(x program.Value) program.Value {
		return x.Abs().ReduceMax(0).Reshape(1, x.Shape()[1])
	}
}

func byTensor(q *rows) {
	q.most = func(x program.Value) program.Value { return x.Abs().MaxAll().Reshape(1, 1) }
}

// keysByColumn is rows, except that keys have one scale for each column or, with allHeads, for the
// same column of all heads.
type keysByColumn struct{ allHeads bool }

func (keysByColumn) Describe() sdk.Description { return good().Describe() }

func (k keysByColumn) Quantize(
	b *program.Builder, x program.Value, site sdk.Site,
) (sdk.Quantized, error) {
	q := good()
	if site.Role == sdk.RoleKey {
		byColumn(&q)
		if heads := site.Heads; k.allHeads && heads > 1 {
			q.most = func(x program.Value) program.Value {
				size := site.RowLen() / heads
				of := x.Abs().ReduceMax(0).Reshape(heads, size).ReduceMax(0)
				return of.Broadcast([]int{1, heads, size}, []int{2}).Reshape(1, heads*size)
			}
		}
	}
	return q.Quantize(b, x, site)
}

// failsForKeys is a mistake that affects only keys.
func failsForKeys(site sdk.Site) error {
	if site.Role == sdk.RoleKey && site.Heads > 0 && site.Context > 0 {
		return fmt.Errorf("no row %d", site.Shape[0])
	}
	return nil
}

func double(v program.Value) program.Value { return v.Scale(2) }

// TestQuantizerMutants checks that each mistake fails the checks meant for it. Short mode tries
// every sixth.
func TestQuantizerMutants(t *testing.T) {
	every := testlevel.Sample(6, 1, 1)
	idempotent := sdktest.Claim(sdk.Claim{Name: sdk.ClaimIdempotent})
	unbiased := sdktest.Claim(sdk.Claim{Name: sdk.ClaimAnyRounding},
		sdk.Claim{Name: sdk.ClaimUnbiased})
	for i, c := range []struct {
		name   string
		q      sdk.Quantizer
		fails  []string
		option sdktest.Option
	}{
		{"rounds down", broken(func(q *rows) { q.round = program.Value.Floor }),
			[]string{"nearest", "error"}, nil},
		{"truncates", broken(func(q *rows) {
			q.round = func(r program.Value) program.Value { return r.Abs().Floor().Mul(r.Sign()) }
		}), []string{"nearest"}, nil},
		{"gradient twice as large", broken(func(q *rows) { q.surrogate = double }),
			[]string{"gradient size"}, nil},
		{"gradient half as large", broken(func(q *rows) {
			q.surrogate = func(v program.Value) program.Value { return v.Scale(0.5) }
		}), []string{"gradient size"}, nil},
		{"the first row's scale for all", broken(func(q *rows) { q.scale = firstRow }),
			[]string{"non-finite"}, nil},
		{"another scale in one row", broken(func(q *rows) {
			q.scale = func(s, x program.Value) program.Value {
				b := x.Builder()
				first := b.Iota(s.Type(), 0).Eq(b.Const(1))
				return first.Select(s.Scale(4), s)
			}
		}), []string{"rows", "error"}, nil},
		{"another scale in one row, and noise", dithered(func(q *rows) {
			q.scale = func(s, x program.Value) program.Value {
				b := x.Builder()
				return b.Iota(s.Type(), 0).Eq(b.Const(1)).Select(s.Scale(6), s)
			}
		}), []string{"error"}, sdktest.Claim(sdk.Claim{Name: sdk.ClaimAnyRounding})},
		{"noise that rounds up too often", stochastic(func(q *rows) {
			q.drawn = func(r, u program.Value) program.Value { return r.Add(u).Round() }
		}), []string{"noise"}, unbiased},
		{"noise that shrinks values", stochastic(func(q *rows) {
			q.drawn = func(r, u program.Value) program.Value {
				return r.Abs().Add(u.Scale(0.97)).Floor().Mul(r.Sign())
			}
		}), []string{"noise"}, unbiased},
		{"noise that shrinks values, in rows of even length alone", stochastic(func(q *rows) {
			q.refuse = odd(sdk.Refuse)
			q.drawn = func(r, u program.Value) program.Value {
				return r.Abs().Add(u.Scale(0.97)).Floor().Mul(r.Sign())
			}
		}), []string{"noise"}, unbiased},
		{"noise that is the same for all keys", stochastic(func(q *rows) {
			q.drawn = func(r, u program.Value) program.Value {
				return r.Add(u.Floor()).Add(r.Builder().Const(0.5)).Floor()
			}
		}), []string{"noise"}, unbiased},
		{"noise in training, and evaluation rounds down", stochastic(func(q *rows) {
			q.round = program.Value.Floor
		}), []string{"nearest", "error"}, unbiased},
		{"NaN stays in its place", broken(func(q *rows) {
			q.finite = func(x program.Value) program.Value { return x.Eq(x).Or(x.IsFinite()) }
			q.scale = func(_, x program.Value) program.Value {
				b := x.Builder()
				clean := x.IsFinite().Select(x, b.Const(0))
				return clean.Abs().MaxRow().Div(b.Const(7))
			}
		}), []string{"non-finite"}, nil},
		{"infinite values are finite", broken(func(q *rows) {
			q.finite = func(x program.Value) program.Value { m := x.Abs().MaxRow(); return m.Eq(m) }
		}), []string{"non-finite"}, nil},
		{"0/0 in a row of zeros", broken(func(q *rows) { q.zero = 0 }), []string{"zeros"}, nil},
		{"another program each time", broken(func(q *rows) { q.scale = unstable }),
			[]string{"deterministic"}, nil},
		{"not homogeneous", broken(func(q *rows) {
			q.scale = func(s, _ program.Value) program.Value { return s.Shift(1e-3) }
		}), []string{"homogeneous"}, nil},
		{"mask inverted", broken(func(q *rows) { q.mask = program.Value.Not }),
			[]string{"zeros", "non-finite", "gradient size"}, nil},
		{"not idempotent", broken(func(q *rows) {
			q.scale = func(s, _ program.Value) program.Value { return s.Scale(0.9) }
		}), []string{"fixed points"}, idempotent},
		{"codes of NaN rows", broken(func(q *rows) {
			q.codes = func(v program.Value) program.Value { return v.Add(v.Builder().ConstInt(1)) }
		}), []string{"zeros", "non-finite"}, nil},
		{"a panic at the end of a range", broken(func(q *rows) { q.refuse = panics }),
			[]string{"parameters"}, nil},
		{"a width that it refuses", broken(func(q *rows) { q.refuse = wide }), []string{"shapes"}, nil},
		{"fails in the last block", broken(func(q *rows) { q.refuse = last }), []string{"shapes"}, nil},
		{"fails for keys", broken(func(q *rows) { q.refuse = failsForKeys }), []string{"parameters"},
			nil},
		{"keys by columns, without a claim", keysByColumn{}, []string{"scale scope"}, nil},
		{"keys by columns of all heads", keysByColumn{allHeads: true}, []string{"scale scope"},
			sdktest.Claim(sdk.Claim{Name: sdk.ClaimKeyScope, Value: sdk.ScopeColumn})},
		{"fails at gradients", broken(func(q *rows) {
			q.refuse = func(site sdk.Site) error {
				if site.Role == sdk.RoleGradient {
					return errors.New("what is this?")
				}
				return nil
			}
		}), []string{"shapes"}, nil},
		{"fails at odd rows", broken(func(q *rows) { q.refuse = odd(fmt.Errorf) }), []string{"shapes"},
			nil},
		{"codes count the rows", broken(func(q *rows) {
			q.codes = func(v program.Value) program.Value { return v.Add(v.Builder().Iota(v.Type(), 0)) }
		}), []string{"rows", "zeros"}, nil},
		{"a default out of range", broken(func(q *rows) { q.parameters[0].Default = 9 }),
			[]string{"description"}, nil},
		{"another scale is reported", packed{rows: broken(func(q *rows) {
			q.reported = func(s, _ program.Value) program.Value { return s.Scale(1 + 0x1p-20) }
		})}, []string{"codes"}, nil},
		{"unpacks wrong", packed{good(), func(codes, scale program.Value) program.Value {
			return codes.Convert(program.Float).Shift(1).Mul(scale)
		}}, []string{"codes"}, nil},
		{"unpacks small rows to zero", packed{good(), func(codes, scale program.Value) program.Value {
			return scale.Lt(scale.Builder().Const(1e-20)).
				Select(scale.Builder().Const(0), codes.Convert(program.Float).Mul(scale))
		}}, []string{"codes"}, nil},
		{"codes that are no whole numbers", broken(func(q *rows) {
			q.codes = func(v program.Value) program.Value { return v.Convert(program.Float).Scale(0.5) }
		}), []string{"codes"}, nil},
		{"a grid that ends too early", broken(func(q *rows) {
			q.grid = func(bits int) sdk.Grid { return sdk.Integers(2-1<<(bits-1), 1<<(bits-1)-1, 0) }
		}), []string{"codes"}, nil},
		{"a grid of fewer codes for each scale", broken(func(q *rows) {
			q.grid = func(bits int) sdk.Grid { return sdk.ZeroPoints(1<<(bits-1)-1, 0) }
		}), []string{"codes"}, nil},
		{"a grid of other numbers", broken(func(q *rows) {
			q.grid = func(int) sdk.Grid { return sdk.E2M1(0) }
		}), []string{"codes"}, nil},
		{"a grid with groups that there are not", broken(func(q *rows) {
			q.grid = func(int) sdk.Grid { return sdk.Integers(-128, 127, 16) }
		}), []string{"codes"}, nil},
		{"a grid whose scale is another", broken(func(q *rows) {
			q.grid = func(int) sdk.Grid { return sdk.Integers(-128, 127, 0) }
			q.reported = func(s, _ program.Value) program.Value { return s.Scale(2) }
		}), []string{"codes"}, nil},
		{"a grid whose scale is NaN", broken(func(q *rows) {
			q.grid = func(int) sdk.Grid { return sdk.Integers(-128, 127, 0) }
			q.reported = func(s, _ program.Value) program.Value { return s.Scale(math.NaN()) }
		}), []string{"codes"}, nil},
		{"a claim of the other kind", good(), []string{"description"},
			sdktest.Claim(sdk.Claim{Name: sdk.ClaimStill})},
		{"a claim for settings that are not the defaults", good(), []string{"scale scope"},
			sdktest.Claim(sdk.Claim{Name: sdk.ClaimScaleScope, Value: sdk.ScopeTensor,
				When: map[string]any{"bits": 3}})},
		{"passes the gradient of a neighbour", clipping{shift: 1}, []string{"gradient size"}, nil},
		{"clips one code too early", broken(func(q *rows) { q.short = 1 }), []string{"nearest"}, nil},
		{"clips one code too early, below the largest entries", clipping{short: 1}, []string{"mask"},
			nil},
		{"a code too many", broken(func(q *rows) {
			q.short, q.scale = -1, func(s, _ program.Value) program.Value { return s.Scale(0.5) }
		}), []string{"count of codes"}, nil},
		{"a mask with twice the threshold", clipping{threshold: 2}, []string{"mask"}, nil},
		{"the scale of a column", broken(byColumn), []string{"scale scope"}, nil},
		{"the scale of a column, claimed to be of a row", broken(byColumn), []string{"scale scope"},
			sdktest.Claim(sdk.Claim{Name: sdk.ClaimScaleScope, Value: sdk.ScopeRow})},
		{"the scale of a row, claimed to be of a block", good(), []string{"scale scope"},
			sdktest.Claim(sdk.Claim{Name: sdk.ClaimScaleScope, Value: sdk.ScopeBlock})},
		{"the scale of all tokens", broken(byTensor), []string{"scale scope"}, nil},
		{"the scale of a row, where the grid declares groups", broken(func(q *rows) {
			q.grid = func(bits int) sdk.Grid { return sdk.Integers(1-1<<(bits-1), 1<<(bits-1)-1, 16) }
			q.reported = func(s, x program.Value) program.Value {
				shape := x.Shape()
				return s.Broadcast([]int{shape[0], (shape[1] + 15) / 16}, []int{0, 1})
			}
		}), []string{"scale scope"}, nil},
		{"codes that count levels without saying so", counted(), []string{"zeros"}, nil},
		{"two codes for zero", broken(func(q *rows) {
			q.codes = func(v program.Value) program.Value { return v.Add(v.Builder().Iota(v.Type(), 1)) }
		}), []string{"zeros"}, sdktest.Claim(sdk.Claim{Name: sdk.ClaimAnyZeroCode})},
		{"prunes without saying so", pruned{good()}, []string{"zeros", "non-finite"},
			sdktest.Claim(sdk.Claim{Name: sdk.ClaimAnyRounding})},
		{"the state is not changed",
			observing{next: func(old, _ program.Value) program.Value { return old.Scale(1) }},
			[]string{"state"}, nil},
		{"the state is not read", observing{read: func(_, now program.Value) program.Value { return now },
			counts: true}, []string{"state"}, nil},
		{"evaluation follows the batch",
			observing{evaluate: func(_, now program.Value) program.Value { return now }}, []string{"state"},
			nil},
		{"an average that forgets to weigh",
			observing{next: func(old, now program.Value) program.Value { return old.Scale(0.9).Add(now) }},
			[]string{"state"}, nil},
		{"an average that fades away",
			observing{next: func(old, now program.Value) program.Value { return old.Scale(0.9) }},
			[]string{"state"}, nil},
		{"a state that never changes and does not come from the tensor", observing{
			init: func(now program.Value) program.Value { return now.Builder().Const(3) },
			next: func(old, _ program.Value) program.Value { return old }}, []string{"state"}, nil},
		{"a state that nothing reads, claimed to be for training", observing{counts: true},
			[]string{"state"}, sdktest.Claim(sdk.Claim{Name: sdk.ClaimTrainingState})},
		{"a mask that passes what is clipped and stops the rest", broken(func(q *rows) {
			q.mask = program.Value.Not
		}), []string{"gradient size", "zeros"}, sdktest.Claim(sdk.Claim{Name: sdk.ClaimAnyMask})},
		{"NaN that stays in its place, beside pruned entries", sparse{good(), true},
			[]string{"non-finite"},
			sdktest.Claim(sdk.Claim{Name: sdk.ClaimPrunes}, sdk.Claim{Name: sdk.ClaimAnyRounding})},
		{"a state that is not finite",
			observing{next: func(old, now program.Value) program.Value { return old.Mul(now.Div(now)) }},
			[]string{"state"}, nil},
		{"a state of NaN", observing{
			init: func(now program.Value) program.Value { return now.Mul(now.Log()).Scale(0.1) }},
			[]string{"initial values", "zeros"}, nil},
		{"a state for each row", observing{byRow: true}, []string{"initial values"}, nil},
		{"factors of columns of zeros", smoothing{factors: func(site sdk.Site) program.Value {
			return site.Activations.Max.Div(site.Weights.Max).Sqrt()
		}}, []string{"initial values"}, nil},
		{"factors that are not undone", smoothing{forgets: true}, []string{"error"}, nil},
		{"a step of zero", learned{init: func(s program.Value) program.Value { return s.Scale(0).Log() }},
			[]string{"parameters", "shapes", "initial values"}, nil},
		{"a step for each row",
			learned{shape: func(site sdk.Site) []int { return []int{site.Shape[0], 1} }},
			[]string{"initial values"}, nil},
		{"a step without a gradient", learned{step: program.Value.StopGradient}, []string{"learning"},
			nil},
		{"a step with a gradient of zero", learned{step: func(s program.Value) program.Value {
			return s.StopGradient().Add(s.Scale(0))
		}}, []string{"learning"}, nil},
		{"a step with the wrong sign", learned{step: func(s program.Value) program.Value {
			return s.StopGradient().Scale(2).Sub(s)
		}}, []string{"learning"}, nil},
		{"a gradient where there is none",
			pushed{dx: func(dx, x, _ program.Value) program.Value { return dx.Add(x.Scale(0.01)) }},
			[]string{"own backward pass"}, nil},
		{"a gradient divided by itself",
			pushed{dx: func(dx, _, dy program.Value) program.Value { return dx.Mul(dy).Div(dy) }},
			[]string{"own backward pass"}, nil},
		{"a gradient that overflows",
			pushed{dx: func(dx, _, dy program.Value) program.Value { return dx.Exp().Shift(-1) }},
			[]string{"own backward pass"}, nil},
		{"gradients of other rows",
			pushed{dx: func(dx, _, dy program.Value) program.Value { return dx.Mul(dy.Abs().MaxAll()) }},
			[]string{"own backward pass"}, nil},
		{"a gradient with the wrong sign",
			pushed{dx: func(dx, _, _ program.Value) program.Value { return dx.Neg() }},
			[]string{"gradient size"}, nil},
		{"a gradient of zero",
			pushed{dx: func(dx, _, _ program.Value) program.Value { return dx.Scale(0) }},
			[]string{"gradient size"}, nil},
		{"a gradient where the mask stops it", pushed{passes: true},
			[]string{"gradient size", "non-finite"}, nil},
		{"a step with the wrong sign, by its own gradient", pushed{ds: program.Value.Neg},
			[]string{"learning"}, nil},
		{"a constraint that the start does not meet",
			kept{constraint: func(v program.Value) program.Value {
				return v.Max(v.Builder().Const(5))
			}}, []string{"constraints"}, nil},
		{"a constraint that goes on moving", kept{constraint: func(v program.Value) program.Value {
			whole := v.Scale(1e6).Round().Scale(1e-6)
			return positive(v.Add(v.Sub(whole).Scale(1e3)))
		}}, []string{"constraints"}, nil},
	} {
		if i%every > 0 {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			var options []sdktest.Option
			if c.option != nil {
				options = append(options, c.option)
			}
			fails(t, sdktest.SomeOfQuantizer(c.q, c.fails, options...), c.fails)
		})
	}
}

// TestOptimizerMutants checks the same for optimizers.
func TestOptimizerMutants(t *testing.T) {
	keep := func(in sdk.UpdateInput, _ program.Value) program.Value { return in.State["m"] }
	for _, c := range []struct {
		name  string
		o     sdk.Optimizer
		fails []string
	}{
		{"the state is forgotten", momentum{next: keep}, []string{"state"}},
		{"the state is never read",
			momentum{u: func(in sdk.UpdateInput, _ program.Value) program.Value { return in.Gradient }},
			[]string{"state"}},
		{"climbs", momentum{u: func(_ sdk.UpdateInput, m program.Value) program.Value { return m.Neg() }},
			[]string{"parabola"}},
		{"divides by zero", momentum{
			u: func(_ sdk.UpdateInput, m program.Value) program.Value { return m.Div(m.Abs()) }},
			[]string{"zero gradient"}},
		{"overflows", momentum{
			u: func(_ sdk.UpdateInput, m program.Value) program.Value { return m.Exp() }},
			[]string{"finite", "parabola"}},
		{"starts at NaN", momentum{initial: math.NaN()},
			[]string{"parameters", "finite", "zero gradient"}},
		{"chooses by name", momentum{accepts: func(t sdk.Tensor) bool { return len(t.Name) > 2 }},
			[]string{"selection"}},
		{"takes all parts for equal", thirds{}, []string{"parts"}},
		{"declines weights in parts",
			momentum{accepts: func(t sdk.Tensor) bool { return t.Parts == nil }}, []string{"parts"}},
		{"accepts nothing", momentum{accepts: func(sdk.Tensor) bool { return false }},
			[]string{"selection"}},
		{"corrects for one update too many", corrected{shift: 1}, []string{"correction"}},
		{"corrects for one update too few", corrected{shift: -1}, []string{"finite"}},
		{"decay inside u", momentum{
			u: func(in sdk.UpdateInput, m program.Value) program.Value { return m.Add(in.X.Scale(0.01)) }},
			[]string{"decay"}},
		{"depends on the name", named{}, []string{"selection"}},
		{"divides by the rate",
			momentum{u: func(in sdk.UpdateInput, m program.Value) program.Value { return m.Div(in.Rate) }},
			[]string{"conditions"}},
		{"divides by the loss",
			momentum{u: func(in sdk.UpdateInput, m program.Value) program.Value { return m.Div(in.Loss) }},
			[]string{"conditions"}},
		{"divides by the steps that are left",
			momentum{u: func(in sdk.UpdateInput, m program.Value) program.Value {
				return m.Div(in.Steps.Sub(in.Step))
			}}, []string{"conditions"}},
		{"a rate of its own without a schedule",
			paced{rate: func(in sdk.UpdateInput) program.Value {
				return in.Step.Pow(in.Step.Builder().Const(-0.5))
			}}, []string{"conditions"}},
		{"a negative rate", paced{rate: func(in sdk.UpdateInput) program.Value { return in.Rate.Neg() }},
			[]string{"conditions", "parabola"}},
		{"a rate that is not finite",
			paced{rate: func(in sdk.UpdateInput) program.Value { return in.Rate.Mul(in.Rate.Log()) }},
			[]string{"conditions"}},
		{"an average that starts at zero", averaged{start: zeros}, []string{"evaluation"}},
		{"an average that is not one",
			averaged{result: func(x, mean program.Value) program.Value { return mean.Scale(0.9) }},
			[]string{"evaluation"}},
		{"an average that is not finite", averaged{result: func(x, mean program.Value) program.Value {
			return x.Add(x.Sub(mean).Log().Sub(x.Sub(mean).Log()))
		}}, []string{"finite"}},
		{"the average is not evaluated",
			averaged{result: func(x, _ program.Value) program.Value { return x }}, []string{"state"}},
		{"evaluates where it began", averaged{keeps: true}, []string{"parabola"}},
		{"collects what is not finite", collecting{collect: func(in sdk.UpdateInput) program.Value {
			return in.Gradient.Exp().SumAll()
		}}, []string{"finite"}},
		{"divides by a sum of zero", collecting{least: -1}, []string{"zero gradient"}},
		{"probes at infinity",
			probing{offset: func(in sdk.UpdateInput) program.Value { return in.Gradient.Exp() }},
			[]string{"finite"}},
		{"climbs from the offset",
			probing{u: func(in sdk.UpdateInput) program.Value {
				return in.Gradient.Scale(2).Sub(in.Probed.Scale(3))
			}}, []string{"parabola"}},
		{"draws labels for nothing",
			sampling{u: func(in sdk.UpdateInput, _ program.Value) program.Value { return in.Gradient }},
			[]string{"state"}},
		{"divides by no drawn label",
			sampling{u: func(in sdk.UpdateInput, _ program.Value) program.Value {
				return in.Gradient.Div(in.Probed.Sub(in.Gradient))
			}}, []string{"finite", "parabola"}},
		{"keeps fractions as integers", tallied{by: 0.5}, []string{"parameters"}},
		{"keeps integers that are too large", tallied{by: 100}, []string{"parameters"}},
		{"the refresh is not used", whitened{use: func(q program.Value) program.Value {
			return identity(q.Builder(), q.Shape()[0])
		}}, []string{"state"}},
		{"a gradient is kept for a refresh that does not read it",
			aligned{carried: true, ignores: true}, []string{"state"}},
		{"the loss is kept for nothing", modelBased{ignores: true}, []string{"state"}},
		{"the refresh changes nothing", whitened{basis: func(q program.Value) program.Value {
			return identity(q.Builder(), q.Shape()[0])
		}}, []string{"state"}},
	} {
		t.Run(c.name, func(t *testing.T) { fails(t, sdktest.SomeOfOptimizer(c.o, c.fails), c.fails) })
	}
}

// TestClaims checks that a promise is required, and an exception allowed, only if it is claimed.
func TestClaims(t *testing.T) {
	creeps := momentum{u: func(in sdk.UpdateInput, m program.Value) program.Value {
		return m.Add(in.X.Scale(1e-6))
	}}
	still, descent := []string{"zero gradient"}, []string{"parabola"}
	fails(t, sdktest.SomeOfOptimizer(creeps, still), nil)
	fails(t, sdktest.SomeOfOptimizer(creeps, still, sdktest.Claim(sdk.Claim{Name: sdk.ClaimStill})),
		still)
	fails(t, sdktest.CheckOptimizer(sdktest.NewOptimizer(momentum{}),
		sdktest.Claim(sdk.Claim{Name: sdk.ClaimStill}, sdk.Claim{Name: sdk.ClaimDescent, Value: 1e-2})),
		nil)
	fails(t, sdktest.SomeOfOptimizer(creeps, []string{"decay"},
		sdktest.Claim(sdk.Claim{Name: sdk.ClaimOwnDecay})), nil)
	fails(t, sdktest.SomeOfOptimizer(named{}, []string{"selection"},
		sdktest.Claim(sdk.Claim{Name: sdk.ClaimByName})), nil)
	fails(t, sdktest.SomeOfQuantizer(broken(byColumn), []string{"scale scope"},
		sdktest.Claim(sdk.Claim{Name: sdk.ClaimScaleScope, Value: sdk.ScopeColumn})), nil)
	dampened := pushed{dx: func(dx, x, _ program.Value) program.Value {
		return dx.Add(x.IsFinite().Select(x.Scale(1e-3), dx))
	}}
	fails(t, sdktest.SomeOfQuantizer(dampened, []string{"own backward pass"},
		sdktest.Claim(sdk.Claim{Name: sdk.ClaimOwnLoss})), nil)
	fails(t, sdktest.SomeOfQuantizer(broken(byTensor), []string{"scale scope"},
		sdktest.Claim(sdk.Claim{Name: sdk.ClaimScaleScope, Value: sdk.ScopeTensor})), nil)
	fails(t, sdktest.SomeOfOptimizer(momentum{}, descent,
		sdktest.Claim(sdk.Claim{Name: sdk.ClaimDescent, Value: 1e-200})), descent)
	fails(t, sdktest.CheckQuantizer(
		sdktest.NewQuantizer(broken(func(q *rows) { q.refuse = odd(sdk.Refuse) }))), nil)
}

// odd refuses rows of odd length, with an error of the given kind.
func odd(refuse func(string, ...any) error) func(sdk.Site) error {
	return func(site sdk.Site) error {
		if site.RowLen()%2 == 1 {
			return refuse("rows of %d cannot be packed: use an even number", site.RowLen())
		}
		return nil
	}
}

// fails checks that the named checks failed or, without names, that none did.
func fails(t *testing.T, r sdktest.Report, want []string) {
	t.Helper()
	got := map[string]bool{}
	for _, c := range r.Checks {
		if c.Failed > c.Tried {
			t.Errorf("%s: %d of %d examples failed", c.Name, c.Failed, c.Tried)
		}
		if c.Status == sdktest.Fail {
			got[c.Name] = true
		}
	}
	for _, name := range want {
		if !got[name] {
			t.Errorf("failed: %q, want %q to be among them\n%s", slices.Sorted(maps.Keys(got)), want, r)
			return
		}
	}
	if r.Failed() != (len(want) > 0) {
		t.Errorf("failed: %v, want %q\n%s", r.Failed(), want, r)
	}
}
