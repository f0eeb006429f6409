package scaling

import (
	"math"
	"strings"
	"testing"

	"github.com/cage-qat/cage/internal/testing/testlevel"
)

// paperFile holds the losses of the CAGE paper's table of pre-training experiments.
const paperFile = "../../../examples/paper/scaling/paper.csv"

// paperEffs holds the efficiencies in the last column of that table.
var paperEffs = map[string]float64{"CAGE + HT": 0.797, "QuEST + HT": 0.733, "CAGE": 0.705,
	"QuEST": 0.620}

func paperPoints(t testing.TB) []Point {
	t.Helper()
	points, err := ReadFile(paperFile)
	if err != nil {
		t.Fatal(err)
	}
	if len(points) != 30 {
		t.Fatalf("%d points, want 5 rows of 6 sizes", len(points))
	}
	return points
}

// TestPaperEfficiencies checks that least squares give the table's efficiencies within 0.02.
func TestPaperEfficiencies(t *testing.T) {
	testlevel.Long(t, "fits many times")
	fits := map[float64]*Fit{}
	for _, prior := range []float64{0, DefaultPrior} {
		fit := fitOrFail(t, paperPoints(t), Options{Prior: prior})
		fits[prior] = fit
		for method, want := range paperEffs {
			if got := fit.Eff(Group{method, 4}); math.Abs(got-want) > 0.02 {
				t.Errorf("prior %g: eff of %s is %.4f, the paper's %.3f", prior, method, got, want)
			}
		}
		if !strings.Contains(strings.Join(fit.Warnings, "\n"), "tokens per parameter") {
			t.Errorf("no warning that D is proportional to N: %q", fit.Warnings)
		}
	}
	// Values from an independent implementation: SciPy's least_squares, trust-region reflective.
	fit := fits[0]
	for method, want := range map[string]float64{"CAGE + HT": 0.7880, "QuEST + HT": 0.7324,
		"CAGE": 0.6917, "QuEST": 0.6320} {
		if got := fit.Eff(Group{method, 4}); math.Abs(got-want) > 1e-4 {
			t.Errorf("eff of %s is %.5f, want %.4f", method, got, want)
		}
	}
	if math.Abs(fit.Law.Alpha-0.0864) > 1e-4 || math.Abs(fit.Law.Beta-1.0072) > 1e-3 ||
		math.Abs(fit.Law.E-0.3536) > 1e-3 {
		t.Errorf("law %+v", fit.Law)
	}
}

// TestPaperWithPublishedLaw checks that the shared parameters of QuEST's published fit give other
// efficiencies, all below the paper's: the paper did not use these parameters.
func TestPaperWithPublishedLaw(t *testing.T) {
	fixed := map[string]float64{"A": published.A, "alpha": published.Alpha, "B": published.B,
		"beta": published.Beta, "E": published.E}
	fit := fitOrFail(t, paperPoints(t), Options{Fixed: fixed})
	for method, want := range map[string]float64{"CAGE + HT": 0.7103, "QuEST + HT": 0.6431,
		"CAGE": 0.5973, "QuEST": 0.5278} {
		if got := fit.Eff(Group{method, 4}); math.Abs(got-want) > 1e-4 {
			t.Errorf("eff of %s is %.5f, want %.4f", method, got, want)
		}
	}
}

func TestPaperSinglePoints(t *testing.T) {
	want := map[string][]float64{
		"CAGE + HT":  {0.705, 0.716, 0.711, 0.738, 0.735, 0.752},
		"QuEST + HT": {0.675, 0.661, 0.671, 0.697, 0.613, 0.635},
		"CAGE":       {0.570, 0.553, 0.573, 0.625, 0.657, 0.687},
		"QuEST":      {0.557, 0.526, 0.544, 0.519, 0.558, 0.535},
	}
	points := paperPoints(t)
	reference, at := points[:6], map[string]int{}
	for _, p := range points[6:] {
		i := at[p.Method]
		at[p.Method]++
		if got := published.invert(p.N, p.Loss, reference[i].Loss); math.Abs(
			got-want[p.Method][i]) > 5e-4 {
			t.Errorf("%s, %g parameters: %.4f, want %.3f", p.Method, p.N, got, want[p.Method][i])
		}
	}
	if got := published.Loss(30482560, 3048256000, 1); math.Abs(got-3.20591233724225) > 1e-6 {
		t.Errorf("the published law has loss %v", got)
	}
}

// published is the fit published with QuEST (Panferov et al. 2025) for Llama-style models of
// 30M to 800M parameters on C4, with 25, 50 and 100 tokens per parameter.
var published = Law{A: 8.134031011055859, Alpha: 0.062726522, B: 86.41190623830154,
	Beta: 0.241288351, E: 0.0014232897805828435}

// invert returns the parameter efficiency that explains one loss, given the loss of the
// reference at equal N and D:
//
//	eff = (1 + (N^α/A)·(L − L_ref))^(−1/α)
//
// It needs only A and α: errors of the law that the reference shares cancel. It is +Inf
// if the loss is so far below the reference's that no number of parameters explains it.
func (l Law) invert(n, loss, reference float64) float64 {
	x := 1 + math.Pow(n, l.Alpha)/l.A*(loss-reference)
	if x <= 0 {
		return math.Inf(1)
	}
	return math.Pow(x, -1/l.Alpha)
}
