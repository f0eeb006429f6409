package sdktest_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/sdktest"
)

// TestClaimsAreNamed checks that a failure names the claim that is not kept, or the claim that
// would allow what failed.
func TestClaimsAreNamed(t *testing.T) {
	unbalanced := broken(func(q *rows) {
		q.drawn = func(r, u program.Value) program.Value { return r.Add(u.Scale(0.5)).Floor() }
	})
	half := broken(func(q *rows) {
		q.surrogate = func(v program.Value) program.Value { return v.Scale(0.25) }
	})
	decaying := momentum{
		u: func(in sdk.UpdateInput, m program.Value) program.Value { return m.Add(in.X.Scale(0.01)) }}
	climbing := momentum{u: func(_ sdk.UpdateInput, m program.Value) program.Value { return m.Neg() }}
	for _, c := range []struct {
		check, want string
		q           sdk.Quantizer
		o           sdk.Optimizer
		claims      []sdk.Claim
	}{
		{check: "fixed points", q: clipping{}, claims: []sdk.Claim{{Name: sdk.ClaimIdempotent}},
			want: "idempotent is claimed"},
		{check: "noise", q: unbalanced,
			claims: []sdk.Claim{{Name: sdk.ClaimAnyRounding}, {Name: sdk.ClaimUnbiased}},
			want:   "unbiased is claimed"},
		{check: "scale scope", q: good(),
			claims: []sdk.Claim{{Name: sdk.ClaimScaleScope, Value: sdk.ScopeTensor}},
			want:   "scale_scope claims tensor"},
		{check: "scale scope", q: keysByColumn{},
			claims: []sdk.Claim{{Name: sdk.ClaimKeyScope, Value: sdk.ScopeRow}},
			want:   "key_scope claims row"},
		{check: "scale scope", q: keysByColumn{},
			want: "claim scale_scope as column, or key_scope if it is so only for keys"},
		{check: "gradient size", q: half, want: "claim any_gradient"},
		{check: "own backward pass", want: "claim own_loss",
			q: pushed{dx: func(dx, x, dy program.Value) program.Value { return dx.Add(x.Scale(0.01)) }}},
		{check: "decay", o: decaying, want: "claim own_decay"},
		{check: "zero gradient", o: decaying, claims: []sdk.Claim{{Name: sdk.ClaimStill}},
			want: "where the plugin claims still"},
		{check: "selection", o: named{}, want: "claim by_name"},
		{check: "parabola", o: climbing, want: "claim no_descent"},
		{check: "parabola", o: momentum{}, claims: []sdk.Claim{{Name: sdk.ClaimDescent, Value: 1e-300}},
			want: "as descent claims"},
	} {
		report := some(c.q, c.o, c.claims, c.check)
		if text := report.String(); !report.Failed() || !strings.Contains(text, c.want) {
			t.Errorf("%q is not in\n%s", c.want, text)
		}
	}
}

func some(q sdk.Quantizer, o sdk.Optimizer, claims []sdk.Claim, check string) sdktest.Report {
	if q != nil {
		return sdktest.SomeOfQuantizer(q, []string{check}, sdktest.Claim(claims...))
	}
	return sdktest.SomeOfOptimizer(o, []string{check}, sdktest.Claim(claims...))
}

// TestNothingToLookAt checks that notes of skipped checks do not describe programs that do not
// exist.
func TestNothingToLookAt(t *testing.T) {
	q := broken(func(q *rows) { q.refuse = func(sdk.Site) error { return errors.New("no") } })
	for _, r := range []sdktest.Report{
		sdktest.CheckQuantizer(sdktest.NewQuantizer(q)),
		sdktest.CheckOptimizer(
			sdktest.NewOptimizer(momentum{accepts: func(sdk.Tensor) bool { return false }})),
	} {
		for _, c := range r.Checks {
			if c.Status != sdktest.Skip {
				continue
			}
			switch note := strings.Join(c.Notes, "; "); note {
			case "", "not requested: there is no device to compare with the reference",
				"optional: unbiased is not claimed",
				"not applicable: there is no parameter bits",
				"not tested: the plugin refused or failed to write all programs":
			default:
				if !strings.Contains(note, "declined") {
					t.Errorf("%s: %s", c.Name, note)
				}
			}
		}
	}
}

// TestSmallestDecay checks that 2·10⁻⁸·x, as at the start of an estimated rate, is not reported as
// decay.
func TestSmallestDecay(t *testing.T) {
	for part, decays := range map[float64]bool{2e-8: false, 1e-4: true} {
		o := momentum{u: func(in sdk.UpdateInput, m program.Value) program.Value {
			return m.Add(in.X.Scale(part))
		}}
		if report := some(nil, o, nil, "decay"); report.Failed() != decays {
			t.Errorf("a part of %v of x:\n%s", part, report)
		}
	}
}

// TestLateRefresh checks that the kit does not make all updates before a late first refresh, and
// reports what it therefore did not test.
func TestLateRefresh(t *testing.T) {
	report := some(nil, whitened{delay: 2000}, nil, "state")
	if text := report.String(); report.Failed() ||
		!strings.Contains(text, "state.l has no effect on the next 400 directions; "+
			"the first refresh, at update 2001, is not tested") {
		t.Error(text)
	}
}

// TestMistakesAreNoRefusals checks that the report does not count a mistake as a refusal, too.
func TestMistakesAreNoRefusals(t *testing.T) {
	q := broken(func(q *rows) { q.refuse = odd(fmt.Errorf) })
	report := some(q, nil, nil, "shapes")
	if text := report.String(); !report.Failed() || strings.Contains(text, "requests refused") {
		t.Error(text)
	}
}

// TestGradientOfNaN checks that the report names the most common cause of a gradient of NaN.
func TestGradientOfNaN(t *testing.T) {
	q := pushed{dx: func(dx, x, _ program.Value) program.Value { return dx.Mul(x.Div(x)) }}
	report := some(q, nil, nil, "own backward pass")
	if text := report.String(); !report.Failed() ||
		!strings.Contains(text, "note: a gradient of NaN is often 0·Inf") {
		t.Error(text)
	}
}
