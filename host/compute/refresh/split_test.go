package refresh_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/host/compute/refresh"
	"github.com/cage-qat/cage/host/testing/testrun"
	"github.com/cage-qat/cage/internal/testing/testlevel"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
	"github.com/cage-qat/cage/sdk/spec"
)

// randomState returns random inputs of a refresh program. Factors are positive semidefinite.
func randomState(seed uint64, p *program.Program) map[string]reference.Tensor {
	random := rand.New(rand.NewPCG(seed, 1))
	in := map[string]reference.Tensor{}
	for _, input := range p.Inputs {
		v := make([]float64, input.Type.Size())
		for i := range v {
			v[i] = random.NormFloat64()
		}
		if strings.HasPrefix(input.Name, spec.StatePrefix+"factor") { // positive semidefinite
			n := input.Type.Shape[len(input.Type.Shape)-1]
			for at := 0; at < len(v); at += n * n {
				square(v[at:at+n*n], n)
			}
		}
		in[input.Name] = reference.Floats(v, input.Type.Shape...)
	}
	in[spec.InputStep] = reference.Float(12)
	return in
}

// square replaces A by AAᵀ.
func square(v []float64, n int) {
	a := slices.Clone(v)
	for i := range n {
		for j := range n {
			sum := 0.0
			for k := range n {
				sum += a[i*n+k] * a[j*n+k]
			}
			v[i*n+j] = sum
		}
	}
}

// TestSplitRefresh checks that the two parts of a refresh, one after the other, give the bits of
// the whole program. States that updates write have their last values, and all others their first.
func TestSplitRefresh(t *testing.T) {
	testlevel.Long(t, "it starts plugins")
	for name, c := range map[string]struct {
		optimizer string
		applies   []string // the states that the second part renews
	}{
		"soap": {`optimizer={plugin="soap"}`, []string{"state.m", "state.v"}},
		"soap, bounded": {`optimizer={plugin="soap", max_precond_dim=32}`,
			[]string{"state.m", "state.v"}},
		"shampoo":     {`optimizer={plugin="shampoo"}`, nil},
		"shampoo, 16": {`optimizer={plugin="shampoo", max_precond_dim=16}`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			seen := map[string]bool{}
			for i, rule := range testrun.Plan(t, testrun.Config(t, "model.vocab=32", "model.layers=1",
				c.optimizer)).Rules {
				o := rule.Optimizer
				if key := fmt.Sprint(rule.Shape); o.Refresh == nil || seen[key] {
					continue
				} else {
					seen[key] = true
				}
				checkSplit(t, uint64(i), o, c.applies)
			}
			if len(seen) == 0 {
				t.Error("nothing is refreshed")
			}
		})
	}
	built, err := sdk.BuildOptimizer(testrun.Carrier{}, sdk.Tensor{Name: "x", Shape: []int{2}})
	if err != nil {
		t.Fatal(err)
	}
	checkSplit(t, 1, built, []string{"state.m"})
}

func checkSplit(t *testing.T, seed uint64, o spec.Optimizer, applies []string) {
	t.Helper()
	background, apply, err := refresh.Split(o)
	if err != nil {
		t.Fatal(err)
	}
	var renewed []string
	if apply != nil {
		for _, output := range apply.Outputs {
			renewed = append(renewed, output.Name)
		}
	}
	if diff := cmp.Diff(applies, renewed); diff != "" {
		t.Errorf("the second part renews (-want +got):\n%s", diff)
	}
	then, now := randomState(2*seed, o.Refresh), randomState(2*seed+1, o.Refresh)
	mixed := maps.Clone(then)
	for _, name := range applies {
		mixed[name] = now[name]
	}
	want := execute(t, o.Refresh, mixed)
	got := execute(t, background, then)
	for name, v := range now { // other states that updates have written
		if _, carried := o.Refresh.Output(name); !carried && name != spec.InputStep {
			mixed[name] = v
		}
	}
	maps.Copy(mixed, got)
	for name := range got { // states are replaced after the second part
		if _, state := then[name]; state {
			mixed[name] = then[name]
		}
	}
	if apply != nil {
		maps.Copy(got, execute(t, apply, mixed))
	}
	for name, v := range want {
		if !slices.Equal(v.Floats, got[name].Floats) {
			t.Errorf("%s: in two parts it differs", name)
		}
	}
}

// execute runs a program on the inputs that it takes.
func execute(
	t *testing.T, p *program.Program, in map[string]reference.Tensor,
) map[string]reference.Tensor {
	t.Helper()
	own := map[string]reference.Tensor{}
	for _, input := range p.Inputs {
		own[input.Name] = in[input.Name]
	}
	out, err := reference.Run(p, own)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// odd is an optimizer with the given refresh.
type odd struct {
	testrun.Carrier
	refresh func(b *program.Builder, in sdk.State) sdk.State
}

func (odd) Init(b *program.Builder, _ program.Value, _ sdk.Tensor) (sdk.State, error) {
	return sdk.State{"a": b.Zeros(2, 2), "m": b.Zeros(2, 2), "n": b.Zeros(2, 2)}, nil
}

func (o odd) Refresh(
	b *program.Builder, in sdk.RefreshInput, _ bool, _ sdk.Tensor,
) (sdk.State, error) {
	return o.refresh(b, in.State), nil
}

func (odd) Update(
	_ *program.Builder, in sdk.UpdateInput, _ sdk.Tensor,
) (program.Value, sdk.State, error) {
	next := maps.Clone(in.State)
	next["m"] = in.State["m"].Shift(1)
	return in.Gradient, next, nil
}

// TestCheckDelay checks that refreshes that cannot take effect late are refused with the reason.
func TestCheckDelay(t *testing.T) {
	for name, c := range map[string]struct {
		delay   int
		want    string
		refresh func(b *program.Builder, in sdk.State) sdk.State
	}{
		"longest": {2, "", func(_ *program.Builder, in sdk.State) sdk.State {
			return sdk.State{"a": in["n"].QR()}
		}},
		"too long": {3, "a delay of 3 updates, but refreshes are due every 3: it must be shorter",
			func(_ *program.Builder, in sdk.State) sdk.State { return sdk.State{"a": in["n"].QR()} }},
		"replaced": {1, "replaces the state m without reading it",
			func(_ *program.Builder, in sdk.State) sdk.State {
				return sdk.State{"a": in["a"].QR(), "m": in["n"]}
			}},
		"reset": {1, "replaces the state n without reading it",
			func(b *program.Builder, in sdk.State) sdk.State {
				return sdk.State{"a": in["n"].QR(), "n": b.Zeros(2, 2)}
			}},
		"factorized": {1, "renews the state m by qr of values that updates write, too",
			func(_ *program.Builder, in sdk.State) sdk.State {
				return sdk.State{"m": in["m"].Shift(1).QR()}
			}},
		"integers": {1, "depend on integers",
			func(_ *program.Builder, in sdk.State) sdk.State {
				n := in["n"].Convert(program.Int)
				return sdk.State{"m": in["m"].Mul(n.Add(n).Convert(program.Float).Scale(0)).
					Add(in["m"].Convert(program.Int).Add(n).Convert(program.Float))}
			}},
		"decayed": {1, "", func(_ *program.Builder, in sdk.State) sdk.State {
			return sdk.State{"a": in["n"].QR(), "n": in["n"].Scale(0.5)}
		}},
		"nothing to do before": {1, "",
			func(_ *program.Builder, in sdk.State) sdk.State { return sdk.State{"m": in["m"].Scale(0.5)} }},
		"sorted": {1, "", func(_ *program.Builder, in sdk.State) sdk.State {
			return sdk.State{"m": in["m"].SortColumns(in["m"].ReduceSum(0))}
		}},
		// Operations that a device cannot compute are in the first part, even if they depend on no input.
		"a fixed basis": {1, "", func(b *program.Builder, in sdk.State) sdk.State {
			basis := b.Table([]float64{1, 2, 3, 4}, 2, 2).QR()
			return sdk.State{"m": basis.MatMul(in["m"])}
		}},
		"many to be sorted": {1,
			"renews the state m by sorting columns of values that updates write, too",
			func(_ *program.Builder, in sdk.State) sdk.State {
				wide := in["m"].Reshape(1, 4).Broadcast([]int{1, 4, 1 << 14}, []int{0, 1}).Reshape(1, 1<<16)
				return sdk.State{"m": wide.SortColumns(wide.Reshape(1<<16)).
					Slice([]int{0, 0}, []int{1, 4}, []int{1, 1}).Reshape(2, 2)}
			}},
	} {
		built, err := sdk.BuildOptimizer(odd{refresh: c.refresh},
			sdk.Tensor{Name: "x", Shape: []int{2, 2}})
		if err != nil {
			t.Fatal(err)
		}
		if err := refresh.CheckDelay(built, 0); err != nil {
			t.Errorf("%s: without a delay: %v", name, err)
		}
		err = refresh.CheckDelay(built, c.delay)
		if c.want == "" && err != nil || c.want != "" &&
			(err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want it to say %q", name, err, c.want)
		}
		if err == nil && name == "a fixed basis" {
			checkSplit(t, 3, built, []string{"state.m"})
		}
		if err == nil {
			onDevice(t, name, built)
		}
	}
}

// onDevice checks that the second part of a refresh, for the device, has no factorization.
func onDevice(t *testing.T, name string, o spec.Optimizer) {
	t.Helper()
	_, apply, err := refresh.Split(o)
	if err != nil || apply == nil {
		return
	}
	for _, n := range apply.Nodes {
		if info, _ := n.Op.Info(); info.Class == program.ClassLinalg && n.Op != program.OpSortColumns {
			t.Errorf("%s: the device is to compute %s", name, n.Op)
		}
	}
}
