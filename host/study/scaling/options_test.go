package scaling

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/cage-qat/cage/internal/testing/testlevel"
)

func TestOptionsAreChecked(t *testing.T) {
	if err := Defaults().Check(); err != nil {
		t.Error(err)
	}
	if err := (Options{}).Check(); err != nil {
		t.Error(err)
	}
	for want, o := range map[string]Options{
		"huber threshold -1":         {Huber: -1},
		"weight of the priors NaN":   {Prior: math.NaN()},
		"-1 bootstrap replicates":    {Bootstrap: -1},
		`no parameter "a" to fix`:    {Fixed: map[string]float64{"a": 1}},
		"alpha fixed at 0; want":     {Fixed: map[string]float64{"alpha": 0}},
		"E fixed at -1; want":        {Fixed: map[string]float64{"E": -1}},
		"B fixed at +Inf; want a nu": {Fixed: map[string]float64{"B": math.Inf(1)}},
	} {
		if err := o.Check(); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

func TestReference(t *testing.T) {
	points := wide(7, 0)
	tests := map[string]struct {
		points []Point
		o      Options
		want   string
	}{
		"none": {points[12:], Options{},
			`no reference: no points of 16 bits or more, and without a method with eff = 1, the efficiencies and A are not separable; there are "CAGE, 4 bits", "QuEST, 4 bits", "CAGE, 2 bits", "QuEST, 2 bits": name one of them, or fix A`},
		"unknown": {points, Options{Reference: "FP16"},
			`no reference "FP16"; there are "BF16", "CAGE, 4 bits"`},
		"several": {points, Options{Reference: "CAGE"},
			`several groups could be the reference with eff = 1: "CAGE, 4 bits", "CAGE, 2 bits"; name one of them`},
		"several of 16 bits or more": {append([]Point{
			{Method: "BF16", Bits: 32, N: 1e6, D: 1e9, Loss: 3}}, points...), Options{}, `several groups could be the reference with eff = 1: ` +
			`"BF16, 32 bits", "BF16"; name one of them`},
		"no such basis": {points, Options{Baseline: "STE"}, `no method "STE" to compare with`},
		"no points":     {nil, Options{}, "no points to fit"},
		"a wrong point": {[]Point{{Source: "here"}}, Options{}, "here: the method has no name"},
	}
	for name, test := range tests {
		_, err := Run(context.Background(), test.points, test.o)
		if err == nil || !strings.HasPrefix(err.Error(), test.want) {
			t.Errorf("%s: error %v", name, err)
		}

	}
	// The reference may be a quantized group. Efficiencies are relative to it.
	fit := fitOrFail(t, points, Options{Reference: "CAGE, 4 bits"})
	if e := fit.Eff(Group{"CAGE", 4}); e != 1 || fit.Eff(Group{"BF16", 16}) <= 1 {
		t.Errorf("eff of the reference is %v, of full precision %v", e, fit.Eff(Group{"BF16", 16}))
	}
}

func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Run(ctx, wide(7, 0), Defaults()); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

// TestWarnings checks that parameters that the points do not determine cause warnings, not errors.
func TestWarnings(t *testing.T) {
	testlevel.Long(t, "fits several times")
	random := rand.New(rand.NewPCG(8, 8))
	p := truth(random)
	tests := map[string]struct {
		sizes, ratios []float64
		o             Options
		want          string // "": no warning
	}{
		"a good plan": {wideSizes, wideRatios, Options{Prior: DefaultPrior}, ""},
		"one size": {wideSizes[:1], wideRatios, Options{Prior: DefaultPrior},
			"the points have 1 different sizes"},
		"D proportional": {wideSizes, wideRatios[1:2], Options{Prior: DefaultPrior},
			"all points have about the same tokens per parameter (60)"},
		"fewer than needed": {wideSizes[:1], wideRatios[:1], Options{Prior: DefaultPrior},
			"5 points for 9 parameters"},
		"law given": {wideSizes[:1], wideRatios[:1], Options{Fixed: map[string]float64{
			"A": p.law.A, "alpha": p.law.Alpha, "B": p.law.B, "beta": p.law.Beta, "E": p.law.E}}, ""},
		"no use for B": {wideSizes, wideRatios, Options{Fixed: map[string]float64{"B": 0}}, "beta"},
	}
	for name, test := range tests {
		fit := fitOrFail(t, synthesize(random, p, test.sizes, test.ratios, 1e-3), test.o)
		all := strings.Join(fit.Warnings, "\n")
		if test.want == "" && all != "" || !strings.Contains(all, test.want) {
			t.Errorf("%s: warnings %q, want %q", name, fit.Warnings, test.want)
		}
	}
}
