package study_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/cage-qat/cage/host/study"
	"github.com/cage-qat/cage/internal/testing/testlevel"
)

func near(a, b float64) bool {
	return math.IsNaN(a) && math.IsNaN(b) || a == b || math.Abs(a-b) <= 1e-9*max(1, math.Abs(b))
}

var nan, inf = math.NaN(), math.Inf(1)

func TestDescribe(t *testing.T) {
	tests := []struct {
		x    []float64
		want study.Sample
	}{
		{nil, study.Sample{0, nan, nan}},
		{[]float64{3.5}, study.Sample{1, 3.5, nan}},
		{[]float64{2, 4}, study.Sample{2, 3, math.Sqrt2}},
		{[]float64{2, 4, 4, 4, 5, 5, 7, 9}, study.Sample{8, 5, math.Sqrt(32.0 / 7)}},
		{[]float64{1, 1, 1}, study.Sample{3, 1, 0}},
		{[]float64{0.1, 0.1, 0.1}, study.Sample{3, 0.1, 0}},
		{[]float64{1, nan}, study.Sample{2, nan, nan}},
		{[]float64{1, inf}, study.Sample{2, inf, nan}},
	}
	for _, test := range tests {
		got := study.Describe(test.x)
		if got.N != test.want.N || !near(got.Mean, test.want.Mean) || !near(got.SD, test.want.SD) ||
			(got.SD == 0) != (test.want.SD == 0) {
			t.Errorf("%v: %+v, want %+v", test.x, got, test.want)
		}
	}
}

// TestPair uses quantiles of Student's t from printed tables: 12.7062 (1 degree of freedom),
// 4.30265 (2) and 2.77645 (4) for 95 %, 9.92484 (2) for 99 %.
func TestPair(t *testing.T) {
	tests := []struct {
		a, b  []float64
		level float64
		want  study.Difference
	}{
		{nil, nil, 0.95, study.Difference{0, nan, nan, nan, nan}},
		{[]float64{3}, []float64{1}, 0.95, study.Difference{1, 2, nan, nan, nan}},
		{[]float64{2, 5}, []float64{1, 2}, 0.95, study.Difference{2, 2, math.Sqrt2, nan, nan}},
		// differences −1, −2, −3: mean −2, SD 1, error 1/√3
		{[]float64{0, 1, 2}, []float64{1, 3, 5}, 0.95,
			study.Difference{3, -2, 1, -2 - 4.30265272974946/math.Sqrt(3),
				-2 + 4.30265272974946/math.Sqrt(3)}},
		{[]float64{0, 1, 2}, []float64{1, 3, 5}, 0.99,
			study.Difference{3, -2, 1, -2 - 9.92484320091829/math.Sqrt(3),
				-2 + 9.92484320091829/math.Sqrt(3)}},
		// differences 1, 2, 3, 4, 5: mean 3, SD √2.5, error √0.5
		{[]float64{1, 2, 3, 4, 5}, make([]float64, 5), 0.95,
			study.Difference{5, 3, math.Sqrt(2.5), 3 - 2.77644510519779*math.Sqrt(0.5),
				3 + 2.77644510519779*math.Sqrt(0.5)}},
		{[]float64{1, 2}, []float64{1, 2}, 0.95, study.Difference{2, 0, 0, nan, nan}},
		// All values are zero: the difference is known to be zero, with an interval of width 0.
		{make([]float64, 3), make([]float64, 3), 0.95, study.Difference{3, 0, 0, 0, 0}},
		// 5 of 300 questions more for each seed: equal up to rounding, so there is no interval
		{[]float64{187. / 300, 156. / 300, 214. / 300}, []float64{182. / 300, 151. / 300, 209. / 300},
			0.95, study.Difference{3, 5. / 300, 0, nan, nan}},
		{[]float64{inf, 2}, []float64{1, 2}, 0.95, study.Difference{2, inf, nan, nan, nan}},
		{[]float64{inf, 2}, []float64{inf, 2}, 0.95, study.Difference{2, nan, nan, nan, nan}},
		{[]float64{inf, inf}, []float64{1, 2}, 0.95, study.Difference{2, inf, 0, nan, nan}},
	}
	for _, test := range tests {
		got := study.Pair(test.a, test.b, test.level)
		if got.N != test.want.N || !near(got.Mean, test.want.Mean) || !near(got.SD, test.want.SD) ||
			!near(got.Low, test.want.Low) || !near(got.High, test.want.High) {
			t.Errorf("%v − %v: %+v, want %+v", test.a, test.b, got, test.want)
		}
	}
}

func TestClear(t *testing.T) {
	for _, test := range []struct {
		d    study.Difference
		want bool
	}{
		{study.Difference{Low: -2, High: -1}, true},
		{study.Difference{Low: 1, High: 2}, true},
		{study.Difference{Low: -1, High: 1}, false},
		{study.Difference{Low: 0, High: 0}, false},
		{study.Difference{Low: 0, High: 1}, false},
		{study.Difference{Low: nan, High: nan}, false},
	} {
		if got := test.d.Clear(); got != test.want {
			t.Errorf("[%v, %v]: %v", test.d.Low, test.d.High, got)
		}
	}
}

// TestP uses the closed form: with 2 degrees of freedom, P is 1 − |t|/√(t² + 2). 4.30265 is the
// 95 % quantile.
func TestP(t *testing.T) {
	for _, test := range []struct {
		a    []float64
		want float64
	}{
		{nil, nan},
		{[]float64{3}, nan},
		{[]float64{1, 3}, nan},
		{[]float64{-1, -2, -3}, 1 - math.Sqrt(12.0/14)},
		{[]float64{4.30265272974946/math.Sqrt(3) - 1, 4.30265272974946 / math.Sqrt(3),
			4.30265272974946/math.Sqrt(3) + 1}, 0.05},
		{[]float64{-1, 0, 1}, 1},
		{[]float64{0, 0, 0}, 1},
		{[]float64{0, 0}, nan},
		{[]float64{1, 1, 1}, nan}, // no variation: no interval
		{[]float64{inf, 1}, nan},
	} {
		if got := study.Pair(test.a, make([]float64, len(test.a)), study.Level).
			P(); !near(got, test.want) {
			t.Errorf("%v: %v, want %v", test.a, got, test.want)
		}
	}
}

// TestHolm checks that the smallest of m is multiplied by m, the next one by m − 1, and so on. None
// gets less than the one before it, or more than 1. R's p.adjust(p, "holm") gives the same values.
func TestHolm(t *testing.T) {
	for _, test := range []struct{ p, want []float64 }{
		{nil, nil},
		{[]float64{0.04}, []float64{0.04}},
		{[]float64{0.01, 0.04, 0.03, 0.005}, []float64{0.03, 0.06, 0.06, 0.02}},
		{[]float64{0.5, 0.001, nan, 0.02, 0.9}, []float64{1, 0.004, nan, 0.06, 1}},
		{[]float64{0.02, 0.02}, []float64{0.04, 0.04}},
	} {
		got := study.Holm(test.p)
		if len(got) != len(test.want) {
			t.Fatalf("%v: %v", test.p, got)
		}
		for i := range got {
			if !near(got[i], test.want[i]) {
				t.Errorf("%v: %v, want %v", test.p, got, test.want)
				break
			}
		}
	}
}

// TestPairItems compares two models on 100 questions, of which 9 only the first and 1 only the
// second has right: the probability of at most 1 or at least 9 of 10 heads is 22/1024. The
// bootstrap has the interval of the normal distribution but for the error of its quantiles.
func TestPairItems(t *testing.T) {
	a, b := make([]float64, 100), make([]float64, 100)
	for i := range a {
		if i < 59 {
			a[i] = 1
		}
		if i >= 9 && i < 59 || i == 99 {
			b[i] = 1
		}
	}
	d := study.PairItems([][]float64{a}, [][]float64{b}, study.Level)
	half := 1.96 * math.Sqrt((10-0.64)/100/100)
	if d.N != 100 || d.More != 9 || d.Less != 1 || !near(d.P, 22.0/1024) ||
		math.Abs(d.Low-0.08+half) > 0.011 || math.Abs(d.High-0.08-half) > 0.011 {
		t.Errorf("%+v, want 0.08 ± %v", d, half)
	}
	if again := study.PairItems([][]float64{a}, [][]float64{b}, study.Level); *again != *d {
		t.Errorf("again it is %+v", again)
	}
	// A replicate that has the others' answers leaves the signs of differences.
	two := study.PairItems([][]float64{a, b}, [][]float64{b}, study.Level)
	if two.More != 9 || two.Less != 1 || !near(two.P, d.P) {
		t.Errorf("with two replicates: %+v", two)
	}
	same := study.PairItems([][]float64{a}, [][]float64{a}, study.Level)
	if same.P != 1 || same.Low != 0 {
		t.Errorf("of the same model: %+v", same)
	}
	losses := study.PairItems([][]float64{{0.5, 2}}, [][]float64{{0.25, 1}}, study.Level)
	if !math.IsNaN(losses.P) || losses.Low != 0.25 || losses.High != 1 {
		t.Errorf("of losses: %+v", losses)
	}
	if d := study.PairItems([][]float64{a}, [][]float64{b[1:]}, study.Level); d != nil {
		t.Errorf("of different items: %+v", d)
	}
}

// TestIntervalsCover checks that of many experiments without any difference, 5 % have a 95 %
// interval that excludes zero, with any number of replicates.
func TestIntervalsCover(t *testing.T) {
	testlevel.Long(t, "draws many samples")
	const experiments = 20000
	for _, n := range []int{3, 5, 10} {
		random := rand.New(rand.NewPCG(1, uint64(n)))
		wrong := 0
		for range experiments {
			a, b := make([]float64, n), make([]float64, n)
			for i := range a {
				seed := 10 * random.NormFloat64() // common to both
				a[i], b[i] = seed+random.NormFloat64(), seed+random.NormFloat64()
			}
			if study.Pair(a, b, study.Level).Clear() {
				wrong++
			}
		}
		// The standard deviation of the count is √(20000·0.05·0.95) ≈ 31.
		if math.Abs(float64(wrong)-0.05*experiments) > 4*31 {
			t.Errorf("%d replicates: %d of %d intervals leave out zero, want about %g", n, wrong,
				experiments, 0.05*experiments)
		}
	}
}

func ExamplePair() {
	cage := []float64{3.01, 2.98, 3.05}
	quest := []float64{3.06, 3.02, 3.11}
	d := study.Pair(cage, quest, study.Level)
	fmt.Printf("%.3f [%.3f, %.3f], n = %d, clear: %v\n", d.Mean, d.Low, d.High, d.N, d.Clear())
	// Output: -0.050 [-0.075, -0.025], n = 3, clear: true
}
