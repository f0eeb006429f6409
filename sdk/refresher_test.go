package sdk_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/spec"
)

// refresher is a selective optimizer with refreshes; its methods call functions.
type refresher struct {
	optimizer
	observe func(b *program.Builder, in sdk.UpdateInput) (sdk.State, error)
	refresh func(b *program.Builder, in sdk.RefreshInput, first bool) (sdk.State, error)
	due     sdk.Due
	accepts func(t sdk.Tensor) bool
}

func (r refresher) Observe(
	b *program.Builder, in sdk.UpdateInput, _ sdk.Tensor,
) (sdk.State, error) {
	return r.observe(b, in)
}

func (r refresher) Refresh(
	b *program.Builder, in sdk.RefreshInput, first bool, _ sdk.Tensor,
) (sdk.State, error) {
	return r.refresh(b, in, first)
}

func (r refresher) RefreshAt(sdk.Tensor) sdk.Due { return r.due }

func (r refresher) Accepts(t sdk.Tensor) bool { return r.accepts(t) }

// rotated computes its direction in a basis of eigenvectors of GGᵀ, as SOAP does.
var rotated = refresher{
	optimizer: optimizer{
		init: func(b *program.Builder, _ program.Value) (sdk.State, error) {
			return sdk.State{"left": b.Zeros(2, 2), "basis": b.Zeros(2, 2)}, nil
		},
		update: func(_ *program.Builder, in sdk.UpdateInput) (program.Value, sdk.State, error) {
			return in.State["basis"].MatMul(in.Gradient), in.State, nil
		},
	},
	observe: func(_ *program.Builder, in sdk.UpdateInput) (sdk.State, error) {
		return sdk.State{"left": in.State["left"].Add(in.Gradient.MatMul(in.Gradient.Transpose(1, 0)))},
			nil
	},
	refresh: func(_ *program.Builder, in sdk.RefreshInput, first bool) (sdk.State, error) {
		if first {
			return sdk.State{"basis": in.State["left"].EighVectors()}, nil
		}
		return sdk.State{"basis": in.State["left"].MatMul(in.State["basis"]).QR()}, nil
	},
	due:     sdk.Due{First: 1, Next: 10, Every: 10},
	accepts: func(t sdk.Tensor) bool { return t.Role == sdk.TensorMatrix },
}

func TestBuildRefresher(t *testing.T) {
	out, err := sdk.BuildOptimizer(rotated, matrix)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for name, p := range out.Programs() {
		got[name] = inputNames(p) + " → " + outputNames(p)
		if want := "o/" + name + "/layers.0.wq"; p.Name != want {
			t.Errorf("program %s is called %s", name, p.Name)
		}
	}
	want := map[string]string{
		"init":          "x → state.basis state.left",
		"update":        "x gradient step state.basis state.left → direction state.basis state.left",
		"observe":       "x gradient step state.basis state.left → state.left",
		"first_refresh": "step state.basis state.left → state.basis",
		"refresh":       "step state.basis state.left → state.basis",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if !out.Accepts || out.Due != rotated.due || out.FirstRefresh.Hash() == out.Refresh.Hash() {
		t.Errorf("accepts %v, due %+v, first refresh\n%s", out.Accepts, out.Due, out.FirstRefresh)
	}
}

// TestRefreshesThatAreNotDue checks that only refreshes that are due have programs.
func TestRefreshesThatAreNotDue(t *testing.T) {
	nothing := func(*program.Builder, sdk.UpdateInput) (sdk.State, error) { return nil, nil }
	for _, c := range []struct {
		due     sdk.Due
		observe func(*program.Builder, sdk.UpdateInput) (sdk.State, error)
		want    []string
	}{
		{sdk.Due{}, nothing, []string{"init", "update"}},
		{sdk.Due{}, rotated.observe, []string{"init", "update", "observe"}},
		{sdk.Due{First: 3}, nothing, []string{"init", "update", "first_refresh"}},
		{sdk.Due{First: 3, Every: 3}, nothing, []string{"init", "update", "first_refresh", "refresh"}},
	} {
		o := rotated
		o.due, o.observe = c.due, c.observe
		o.refresh = func(b *program.Builder, in sdk.RefreshInput, first bool) (sdk.State, error) {
			if due := c.due; due.First == 0 || !first && due.Every == 0 {
				t.Errorf("%+v: asked for a refresh (first: %v) that is never due", due, first)
			}
			return rotated.refresh(b, in, first)
		}
		out, err := sdk.BuildOptimizer(o, matrix)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for name := range out.Programs() {
			got = append(got, name)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%+v: %s", c.due, diff)
		}
	}
}

func TestSelective(t *testing.T) {
	vector := matrix
	vector.Role = sdk.TensorVector
	o := rotated
	o.optimizer.init = func(*program.Builder, program.Value) (sdk.State, error) {
		t.Error("asked for programs for a tensor that it does not accept")
		return nil, nil
	}
	out, err := sdk.BuildOptimizer(o, vector)
	if diff := cmp.Diff(spec.Optimizer{}, out, cmpopts.EquateEmpty()); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	if err := out.Check(vector.Shape); err != nil {
		t.Error(err)
	}
	o.accepts = func(sdk.Tensor) bool { panic("which role?") }
	_, err = sdk.BuildOptimizer(o, vector)
	checkSiteError(t, err, sdk.KindOptimizer, "panic: which role? (refresher_test.go:")
}

func TestDue(t *testing.T) {
	for _, c := range []struct {
		due  sdk.Due
		want string // updates 1 to 12: F is the first refresh, r a later one
	}{
		{sdk.Due{}, "............"},
		{sdk.Due{First: 4}, "...F........"},
		{sdk.Due{First: 1, Every: 4}, "F..r...r...r"},
		{sdk.Due{First: 1, Next: 5, Every: 3}, "F...r..r..r."},
		{sdk.Due{First: 4, Next: 4, Every: 4}, "...F...r...r"},
		{sdk.Due{First: 6, Next: 2, Every: 3}, ".....F.r..r."},
		{sdk.Due{First: 2, Next: 3, Every: 1}, ".Frrrrrrrrrr"},
	} {
		var got strings.Builder
		for step := 1; step <= 12; step++ {
			due, first := c.due.At(step)
			switch {
			case first && !due:
				t.Errorf("%+v: update %d is the first and not due", c.due, step)
			case first:
				got.WriteByte('F')
			case due:
				got.WriteByte('r')
			default:
				got.WriteByte('.')
			}
		}
		if got.String() != c.want {
			t.Errorf("%+v: refreshes %s, want %s", c.due, &got, c.want)
		}
	}
}

func TestBuildRefresherRefuses(t *testing.T) {
	observing := func(f func(b *program.Builder, in sdk.UpdateInput) (sdk.State, error)) func(
		*refresher) {
		return func(r *refresher) { r.observe = f }
	}
	refreshing := func(f func(b *program.Builder, in sdk.RefreshInput, first bool) (sdk.State,
		error)) func(*refresher) {
		return func(r *refresher) { r.refresh = f }
	}
	due := func(first, next, every int) func(*refresher) {
		return func(r *refresher) { r.due = sdk.Due{First: first, Next: next, Every: every} }
	}
	cases := []struct {
		name   string
		change func(*refresher)
		says   string
	}{
		{"an error in Observe",
			observing(func(*program.Builder, sdk.UpdateInput) (sdk.State, error) {
				return nil, errors.New("blind")
			}), "blind"},
		{"a tensor that is no state",
			observing(func(_ *program.Builder, in sdk.UpdateInput) (sdk.State, error) {
				return sdk.State{"right": in.Gradient}, nil
			}), "the observe program must return one or more of state.basis, state.left, in this order"},
		{"another shape", observing(func(_ *program.Builder, in sdk.UpdateInput) (sdk.State, error) {
			return sdk.State{"left": in.Gradient}, nil
		}), "observe: output state.left is float[2,8], want float[2,2]"},
		{"an absent tensor",
			observing(func(*program.Builder, sdk.UpdateInput) (sdk.State, error) {
				return sdk.State{"left": {}}, nil
			}), `observe: program "o/observe/layers.0.wq": output "state.left": is absent`},
		{"a factorization in Observe",
			observing(func(_ *program.Builder, in sdk.UpdateInput) (sdk.State, error) {
				return sdk.State{"basis": in.State["left"].EighVectors()}, nil
			}), "observe: eigh_vectors: factorizations are for refresh programs only"},
		{"a factorization in Update", func(r *refresher) {
			r.update = func(_ *program.Builder, in sdk.UpdateInput) (program.Value, sdk.State, error) {
				return in.State["left"].QR().MatMul(in.Gradient), in.State, nil
			}
		}, "update: qr: factorizations are for refresh programs only"},
		{"a mistake in an Observe of nothing",
			observing(func(_ *program.Builder, in sdk.UpdateInput) (sdk.State, error) {
				in.Gradient.MatMul(in.Gradient)
				return nil, nil
			}), "(refresher_test.go:"},
		{"an error in Refresh",
			refreshing(func(*program.Builder, sdk.RefreshInput, bool) (sdk.State, error) {
				return nil, errors.New("tired")
			}), "tired"},
		{"a panic in a later refresh",
			refreshing(func(b *program.Builder, in sdk.RefreshInput, first bool) (sdk.State, error) {
				if !first {
					panic("again?")
				}
				return rotated.refresh(b, in, first)
			}), "panic: again? (refresher_test.go:"},
		{"a first refresh of nothing",
			refreshing(func(b *program.Builder, in sdk.RefreshInput, first bool) (sdk.State, error) {
				if first {
					return nil, nil
				}
				return rotated.refresh(b, in, first)
			}), "the first refresh program is required exactly when one is due"},
		{"a later refresh of nothing",
			refreshing(func(b *program.Builder, in sdk.RefreshInput, first bool) (sdk.State, error) {
				if first {
					return rotated.refresh(b, in, first)
				}
				return sdk.State{}, nil
			}), "the refresh program is required exactly when more than one is due"},
		{"a negative schedule", due(1, -1, 10),
			"refreshes are due at {First:1 Next:-1 Every:10}, want numbers from 0 to 2147483647"},
		{"an endless schedule", due(1, 0, math.MaxInt), "want numbers from 0 to 2147483647"},
		{"a schedule without a first", due(0, 10, 10), "First = 0 means never"},
		{"a schedule without an interval", due(1, 10, 0), "Every = 0 means only once"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			o := rotated
			c.change(&o)
			out, err := sdk.BuildOptimizer(o, matrix)
			checkSiteError(t, err, sdk.KindOptimizer, c.says)
			if out.Accepts || out.Update != nil {
				t.Error("a program came with the error")
			}
		})
	}
}

func TestRefresherCheck(t *testing.T) {
	good, err := sdk.BuildOptimizer(rotated, matrix)
	if err != nil {
		t.Fatal(err)
	}
	plain, err := sdk.BuildOptimizer(optimizer{
		func(*program.Builder, program.Value) (sdk.State, error) { return nil, nil },
		func(_ *program.Builder, in sdk.UpdateInput) (program.Value, sdk.State, error) {
			return in.Gradient, nil, nil
		},
	}, matrix)
	if err != nil {
		t.Fatal(err)
	}
	cases := []struct {
		name   string
		change func(*spec.Optimizer)
		says   string
	}{
		{"declined with programs", func(o *spec.Optimizer) { o.Accepts = false },
			"got program init for a tensor that is not accepted"},
		{"never due", func(o *spec.Optimizer) { o.Due = sdk.Due{} },
			"the first refresh program is required exactly when one is due"},
		{"due once", func(o *spec.Optimizer) { o.Due = sdk.Due{First: 1} },
			"the refresh program is required exactly when more than one is due"},
		{"no first refresh", func(o *spec.Optimizer) { o.FirstRefresh = nil },
			"the first refresh program is required"},
		{"no refresh", func(o *spec.Optimizer) { o.Refresh = nil }, "the refresh program is required"},
		{"update for observe", func(o *spec.Optimizer) { o.Observe = o.Update },
			"the observe program must return one or more of state.basis, state.left"},
		{"observe for refresh", func(o *spec.Optimizer) { o.Refresh = o.Observe },
			"the refresh program must take step: float, state.basis: float[2,2], state.left: float[2,2]"},
		{"observe without state", func(o *spec.Optimizer) { *o, o.Observe = plain, plain.Update },
			"got program observe, but the plugin has no state for it to return"},
		{"a state without a name",
			func(o *spec.Optimizer) {
				o.State = append([]spec.Tensor{{}}, o.State...)
			}, "state tensor 0 has no name"},
	}
	for _, c := range cases {
		o := good
		c.change(&o)
		if err := o.Check(matrix.Shape); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.says)
		}
	}
}

// The optimizer renews its preconditioner at the first update and at every tenth update.
func ExampleDue() {
	due := sdk.Due{First: 1, Next: 10, Every: 10}
	for t := 1; t <= 20; t++ {
		if now, first := due.At(t); now {
			fmt.Println("update", t, "first:", first)
		}
	}
	// Output:
	// update 1 first: true
	// update 10 first: false
	// update 20 first: false
}
