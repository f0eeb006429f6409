package matmul

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/cage-qat/cage/host/compute/loops"
	"github.com/cage-qat/cage/internal/halffloat"
	"github.com/cage-qat/cage/internal/testing/testlevel"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func plan(t testing.TB, tier *Tier, a Arithmetic, s shape) *Product {
	t.Helper()
	l, r := s.layouts()
	p, err := New(tier, a, l, r)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func run1(
	t testing.TB, p *Product, out []float32, left, right Elements, parallel func(int, func(int)),
) {
	t.Helper()
	if err := p.Run(Results{Float32: out}, left, right, unscaled(p), parallel); err != nil {
		t.Fatal(err)
	}
}

// unscaled returns scales that change nothing.
func unscaled(p *Product) (s Scales) {
	if p.arithmetic == Int8 {
		s.Rows = slices.Repeat([]float32{1}, p.m)
	}
	return s
}

// checkFloats compares a product of floats with the reference.
func checkFloats(
	t *testing.T, tier *Tier, a Arithmetic, s shape, kinds [2]string, front bool, value func() float64,
) {
	t.Helper()
	l, r := s.layouts()
	left, right := elements(t, kinds[0], reaches(t, l), front, value),
		elements(t, kinds[1], reaches(t, r), front, value)
	p := plan(t, tier, a, s)
	out := guarded[float32](t, p.Size(), front)
	for i := range out {
		out[i] = float32(math.NaN()) // must not be read
	}
	run1(t, p, out, left, right, nil)
	what := fmt.Sprintf("%s %v %v %v", tier.name, a, s, kinds)
	for i, want := range reference(tier, a, l, r, left, right) {
		if !near(t, what, i, out[i], want.sum, want.bound(tier, a, p.k)) {
			return
		}
	}
}

// checkCodes checks that a product of integers equals the reference.
func checkCodes(t *testing.T, tier *Tier, s shape, front bool, left, right func() float64) {
	t.Helper()
	l, r := s.layouts()
	x, y := elements(t, "int8", reaches(t, l), front, left),
		elements(t, "int8", reaches(t, r), front, right)
	p := plan(t, tier, Int8, s)
	out := guarded[float32](t, p.Size(), front)
	run1(t, p, out, x, y, nil)
	what := fmt.Sprintf("%s %v", tier.name, s)
	for i, want := range reference(tier, Int8, l, r, x, y) {
		if !near(t, what, i, out[i], float64(float32(want.sum)), 0) {
			return
		}
	}
}

var floatArithmetics = []Arithmetic{BFloat16, Float32}

// eachTier runs a test for every tier of this processor.
func eachTier(t *testing.T, f func(t *testing.T, tier *Tier)) {
	for _, tier := range Tiers() {
		t.Run(tier.name, func(t *testing.T) { f(t, tier) })
	}
}

// TestSizes tries sizes close to those of tiles and words.
func TestSizes(t *testing.T) {
	eachTier(t, func(t *testing.T, tier *Tier) {
		r := rand.New(rand.NewPCG(1, 2))
		for _, a := range []Arithmetic{BFloat16, Float32, Int8} {
			f := tier.format(a)
			for _, m := range around(f.rows) {
				for _, n := range around(f.columns) {
					for _, k := range testlevel.Sample([]int{1, 7, 16},
						[]int{0, 1, 2, 3, 4, 5, 7, 8, 9, 31, 33, 64, 70}, upTo(70)) {
						if f.integers {
							limit := []int{1, 7, 31, 127}[r.IntN(4)]
							checkCodes(t, tier, square(m, n, k), r.IntN(2) == 0, codes(r, limit), codes(r, limit))
						} else {
							checkFloats(t, tier, a, square(m, n, k), [2]string{"float32", "bfloat16"}, r.IntN(2) == 0,
								normal(r))
						}
						if t.Failed() {
							return
						}
					}
				}
			}
		}
	})
}

func upTo(n int) (all []int) {
	for i := range n + 1 {
		all = append(all, i)
	}
	return all
}

func around(n int) []int {
	if testlevel.All() {
		return upTo(2*n + 1)
	}
	sizes := []int{0, 1, 2, 3, n/2 + 1, n - 1, n, n + 1, 2*n - 1, 2*n + 1}
	slices.Sort(sizes)
	return slices.Compact(sizes)
}

// layoutsToTry returns products with all orders of axes, with batches and gaps, and with more words
// than a block has.
func layoutsToTry() []shape {
	shapes := []shape{
		square(40, 70, 2600), square(250, 20, 300), square(5, 4200, 40), square(1, 1, 5000),
		{batch: []int{70}, m: []int{9}, n: []int{11}, k: []int{40}},
		{batch: []int{3}, m: []int{50}, n: []int{90}, k: []int{700}},
		{batch: []int{2, 3}, m: []int{7, 3}, n: []int{5, 8}, k: []int{3, 6}, gap: 3},
		{m: []int{7}, n: []int{9}, k: []int{1}, left: []int{1, 0}, right: []int{1, 0}},
		// more columns than are packed at a time
		{m: []int{161}, n: []int{171}, k: []int{45}, left: []int{1, 0}, right: []int{1, 0}},
		{batch: []int{2}, m: []int{3, 40}, n: []int{40}, k: []int{12, 10}, left: []int{3, 1, 0, 4, 2},
			right: []int{2, 0, 3, 1}, gap: 1},
	}
	for _, left := range permutations(4) {
		right := left
		shapes = append(shapes, shape{batch: []int{3}, m: []int{21}, n: []int{37}, k: []int{5, 13},
			left: left, right: right})
		slices.Reverse(right)
		shapes = append(shapes, shape{batch: []int{2}, m: []int{30}, n: []int{20}, k: []int{10, 9},
			left: left, right: slices.Clone(right), gap: 2})
	}
	return shapes
}

func permutations(n int) [][]int {
	if n == 0 {
		return [][]int{{}}
	}
	var all [][]int
	for _, p := range permutations(n - 1) {
		for i := range n {
			all = append(all, slices.Insert(slices.Clone(p), i, n-1))
		}
	}
	return all
}

func TestLayouts(t *testing.T) {
	// In short mode, one layout in twelve is tried on each tier, and different ones on each.
	every := testlevel.Sample(12, 1, 1)
	tiers := 0
	eachTier(t, func(t *testing.T, tier *Tier) {
		r := rand.New(rand.NewPCG(3, 4))
		tiers++
		for i, s := range layoutsToTry() {
			if (i+tiers)%every > 0 {
				continue
			}
			for _, kinds := range [][2]string{{"float32", "float32"}, {"bfloat16", "float32"},
				{"bfloat16", "bfloat16"}} {
				checkFloats(t, tier, BFloat16, s, kinds, i%2 == 0, normal(r))
				checkFloats(t, tier, Float32, s, kinds, i%2 == 1, normal(r))
			}
			for _, limits := range [][2]int{{7, 7}, {127, 127}, {20, 127}, {31, 3}} {
				checkCodes(t, tier, s, i%2 == 0, codes(r, limits[0]), codes(r, limits[1]))
			}
			if t.Failed() {
				return
			}
		}
	})
}

// TestWild checks products of NaN, infinite and subnormal numbers, among others.
func TestWild(t *testing.T) {
	eachTier(t, func(t *testing.T, tier *Tier) {
		r := rand.New(rand.NewPCG(5, 6))
		for range testlevel.Sample(20, 100, 2000) {
			for _, a := range floatArithmetics {
				s := square(1+r.IntN(30), 1+r.IntN(40), 1+r.IntN(6))
				checkFloats(t, tier, a, s, [2]string{"float32", "float32"}, false, wild(r))
				s.left, s.right = []int{1, 0}, []int{1, 0}
				checkFloats(t, tier, a, s, [2]string{"bfloat16", "float32"}, false, wild(r))
			}
		}
	})
}

// TestExtremeCodes checks integers at the ends of their range, sums beyond 31 bits before the
// offset is subtracted, and the largest number of summands.
func TestExtremeCodes(t *testing.T) {
	always := func(x float64) func() float64 { return func() float64 { return x } }
	eachTier(t, func(t *testing.T, tier *Tier) {
		for _, x := range []float64{-128, -127, -8, 0, 7, 127} {
			for _, y := range []float64{-128, -127, -7, 0, 8, 127} {
				checkCodes(t, tier, square(3, 5, 3000), false, always(x), always(y))
			}
		}
		checkCodes(t, tier, square(2, 2, MaxCodes), false, always(-128), always(-128))
		checkCodes(t, tier, square(2, 2, MaxCodes), false, always(-128), always(127))
		checkCodes(t, tier, square(2, 2, MaxCodes), false, always(1), always(-3))
	})
}

// TestCodesAgree checks that all tiers give the same results with scales, for sums that float32 can
// and cannot represent.
func TestCodesAgree(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for _, limit := range []int{1, 7, 15, 60, 127} {
		for _, s := range []shape{square(50, 70, 1300),
			{batch: []int{9}, m: []int{14}, n: []int{33}, k: []int{50}, left: []int{1, 2, 0}}} {
			l, rl := s.layouts()
			x, y := elements(t, "int8", reaches(t, l), false, codes(r, limit)),
				elements(t, "int8", reaches(t, rl), false, codes(r, limit))
			scales := Scales{Rows: floats(r, product(s.m)), Columns: floats(r, product(s.n))}
			var first []float32
			for _, tier := range Tiers() {
				p := plan(t, tier, Int8, s)
				out := make([]float32, p.Size())
				if err := p.Run(Results{Float32: out}, x, y, scales, loops.InOrder); err != nil {
					t.Fatal(err)
				}
				if first == nil {
					first = out
				} else if !slices.Equal(first, out) {
					t.Errorf("%s: %v differs from %s", tier.name, s, Tiers()[0].name)
				}
			}
		}
	}
}

func floats(r *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	return x
}

// TestResults compares scaled products of integers, products of floats with an addend, and rounded
// results with float64. Scales and the addend round once each.
func TestResults(t *testing.T) {
	eachTier(t, func(t *testing.T, tier *Tier) {
		r := rand.New(rand.NewPCG(9, 10))
		for _, s := range []shape{square(20, 35, 30), square(13, 40, 1100), square(40, 64, 300),
			{batch: []int{40}, m: []int{7}, n: []int{17}, k: []int{9}}} {
			for i := range 18 {
				a, short := []Arithmetic{BFloat16, Float32, Int8}[i%3], i%2 != 0
				// Floats have no addend, a separate one, or the output itself; integers have scales of rows, or
				// of rows and columns.
				add, same, scaled := a != Int8 && i/6 > 0, i/6 == 2, a == Int8 && i/6 > 0
				m, n := product(s.m), product(s.n)
				kind, value, scales := "float32", normal(r), Scales{}
				if a == Int8 {
					kind, value, scales.Rows = "int8", codes(r, 127), floats(r, m)
				}
				if scaled {
					scales.Columns = floats(r, n)
				}
				l, rl := s.layouts()
				x, y := elements(t, kind, reaches(t, l), false, value),
					elements(t, kind, reaches(t, rl), false, value)
				p := plan(t, tier, a, s)
				addend := make([]float32, p.Size())
				out := Results{Float32: floats(r, p.Size())}
				if short {
					out = Results{BFloat16: make([]uint16, p.Size())}
				}
				if add {
					addend, out.Addend = floats(r, p.Size()), addend
					if same && !short {
						out.Addend = out.Float32
					}
					copy(out.Addend, addend)
				}
				if err := p.Run(out, x, y, scales, goroutines(1+i%3)); err != nil {
					t.Fatal(err)
				}
				what := fmt.Sprintf("%v %v, bfloat16: %v, added: %v, columns scaled: %v", a, s, short, add,
					scaled)
				for at, e := range reference(tier, a, l, rl, x, y) {
					want, bound := e.sum, 0.0
					if a == Int8 {
						bound = roundoff * math.Abs(want)
					} else {
						bound = e.bound(tier, a, p.k)
					}
					for _, scale := range []float64{pick(scales.Rows, at/n), pick(scales.Columns, at)} {
						want, bound = want*scale, bound*math.Abs(scale)
						bound += roundoff * (math.Abs(want) + bound)
					}
					want += float64(addend[at])
					// The addend is added to the first part of a sum.
					bound += 3 * roundoff * (math.Abs(want) + math.Abs(float64(addend[at])) + bound)
					var got float32
					if short {
						got, bound = math.Float32frombits(uint32(out.BFloat16[at])<<16),
							bound+0x1p-8*(math.Abs(want)+bound)
					} else {
						got = out.Float32[at]
					}
					if !near(t, what, at, got, want, bound) {
						return
					}
				}
			}
		}
	})
}

// TestShortResults checks that results in bfloat16 are the rounded float32 results on every tier:
// for integers with scales of rows and of both, for floats with and without an addend, for sums in
// one part and several, and with NaN and infinities.
func TestShortResults(t *testing.T) {
	eachTier(t, func(t *testing.T, tier *Tier) {
		r := rand.New(rand.NewPCG(13, 14))
		for _, s := range []shape{square(1, 1, 1), square(20, 35, 30), square(13, 40, 1100),
			square(200, 97, 512), {batch: []int{40}, m: []int{7}, n: []int{17}, k: []int{9}}} {
			batch, m, n := product(s.batch), product(s.m), product(s.n)
			l, rl := s.layouts()
			for _, a := range []Arithmetic{BFloat16, Float32, Int8} {
				for i := range 2 {
					kind, value, scales := "float32", normal(r), Scales{}
					if a == Int8 {
						kind, value, scales.Rows = "int8", codes(r, 127), floats(r, m)
						if i == 0 {
							scales.Columns = floats(r, n)
						}
					}
					x, y := elements(t, kind, reaches(t, l), false, value),
						elements(t, kind, reaches(t, rl), false, value)
					if a != Int8 && len(x.Float32) > 2 {
						x.Float32[1], x.Float32[len(x.Float32)-1] = float32(math.NaN()), float32(math.Inf(1))
					}
					long, short := Results{Float32: make([]float32, batch*m*n)},
						Results{BFloat16: make([]uint16, batch*m*n)}
					if a != Int8 && i == 0 {
						long.Addend = floats(r, batch*m*n)
						short.Addend = long.Addend
					}
					for _, out := range []Results{long, short} {
						if err := plan(t, tier, a, s).Run(out, x, y, scales, goroutines(3)); err != nil {
							t.Fatal(err)
						}
					}
					for i, b := range short.BFloat16 {
						want := math.Float32frombits(uint32(halffloat.ToBFloat16(long.Float32[i])) << 16)
						if got := math.Float32frombits(uint32(b) << 16); !sameNumber(got, want) {
							t.Fatalf("%v %v, element %d is %v, want %v", a, s, i, got, want)
						}
					}
				}
			}
		}
	})
}

// pick returns the scale of row or column i, counted through all products of the batch.
func pick(scales []float32, i int) float64 {
	if scales == nil {
		return 1
	}
	return float64(scales[i%len(scales)])
}

// goroutines runs tasks on the given number of goroutines, the last task first.
func goroutines(workers int) func(n int, f func(i int)) {
	return func(n int, f func(i int)) {
		var wg sync.WaitGroup
		for w := range workers {
			wg.Go(func() {
				for i := n - 1 - w; i >= 0; i -= workers {
					f(i)
				}
			})
		}
		wg.Wait()
	}
}

// TestSameBits checks that results have the same bits for any number of processors and goroutines
// and any order of tasks. All tiers but AMX divide work alike, so three blocks of summands suffice
// for the slow portable tier.
func TestSameBits(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	type setting struct{ workers, procs int }
	settings := testlevel.Sample([]setting{{1, 1}, {3, 3}},
		[]setting{{1, 1}, {2, 2}, {3, 3}, {8, 8}, {1, 64}, {3, 16}},
		[]setting{{1, 1}, {2, 2}, {3, 3}, {8, 8}, {1, 64}, {3, 16}})
	shapes := []shape{square(150, 130, 1500),
		{batch: []int{20}, m: []int{64}, n: []int{48}, k: []int{30}}, square(7, 4200, 300),
		square(3000, 9, 40), {batch: []int{5}, m: []int{520}, n: []int{20}, k: []int{5000}},
		{batch: []int{3}, m: []int{200}, n: []int{100}, k: []int{300}}}
	eachTier(t, func(t *testing.T, tier *Tier) {
		r := rand.New(rand.NewPCG(11, 12))
		for _, s := range testlevel.Sample(shapes[:2], shapes, shapes) {
			if tier.IsPortable() && !testlevel.All() {
				s.k = []int{min(s.k[0], 3*blocksForVectors.block)}
			}
			l, rl := s.layouts()
			for _, a := range []Arithmetic{BFloat16, Float32, Int8} {
				kind, value := "float32", normal(r)
				if a == Int8 {
					kind, value = "int8", codes(r, 7)
				}
				x, y := elements(t, kind, reaches(t, l), false, value),
					elements(t, kind, reaches(t, rl), false, value)
				p := plan(t, tier, a, s)
				var first []float32
				for _, on := range settings {
					runtime.GOMAXPROCS(on.procs)
					out := make([]float32, p.Size())
					run1(t, p, out, x, y, goroutines(on.workers))
					if first == nil {
						first = out
					} else if !slices.Equal(first, out) {
						t.Errorf("%v %v: other bits with %d goroutines", a, s, on.workers)
					}
				}
			}
		}
	})
}

// TestFloatTiersAgree checks that tiers that multiply float32 words give equal bits: in bfloat16 if
// all products are normal numbers, and in float32 with fused instructions, which the portable tier
// does not have.
func TestFloatTiersAgree(t *testing.T) {
	r := rand.New(rand.NewPCG(13, 14))
	every := testlevel.Sample(6, 1, 1)
	for i, s := range append(layoutsToTry(), square(100, 90, 1000)) {
		if i%every > 0 {
			continue
		}
		l, rl := s.layouts()
		for _, c := range []struct {
			a     Arithmetic
			value func() float64
		}{{BFloat16, normal(r)}, {Float32, normal(r)}, {Float32, wild(r)}, {Float32, tiny(r)}} {
			x, y := elements(t, "float32", reaches(t, l), false, c.value),
				elements(t, "float32", reaches(t, rl), false, c.value)
			var want []float32
			for _, tier := range slices.Backward(Tiers()) {
				if tier.format(c.a).per != 1 || c.a == Float32 && tier.IsPortable() {
					continue
				}
				p := plan(t, tier, c.a, s)
				out := make([]float32, p.Size())
				run1(t, p, out, x, y, nil)
				if want == nil {
					want = out
				} else if !slices.EqualFunc(out, want, sameNumber) {
					t.Errorf("%s, %v: %v has other bits than with an older tier", tier.name, c.a, s)
				}
			}
		}
	}
}

// sameNumber reports whether two numbers have the same bits or are both NaN.
func sameNumber(x, y float32) bool {
	return math.Float32bits(x) == math.Float32bits(y) || x != x && y != y
}

// TestNoAllocations checks that a run reuses the memory of an earlier run.
func TestNoAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("pools lose things at random under the race detector")
	}
	tier := Tiers()[0]
	for _, a := range []Arithmetic{BFloat16, Float32, Int8} {
		for _, s := range []shape{square(200, 300, 400),
			{batch: []int{50}, m: []int{30}, n: []int{30}, k: []int{30}},
			{m: []int{99}, n: []int{101}, k: []int{103}, left: []int{1, 0}, right: []int{1, 0}}} {
			p := plan(t, tier, a, s)
			l, r := s.layouts()
			x, y := Elements{Float32: make([]float32, reaches(t, l))},
				Elements{Float32: make([]float32, reaches(t, r))}
			out, scales := Results{BFloat16: make([]uint16, p.Size()), Addend: make([]float32, p.Size())},
				unscaled(p)
			if a == Int8 {
				out.Addend = nil
				x, y = Elements{Int8: make([]int8, reaches(t, l))}, Elements{Int8: make([]int8, reaches(t, r))}
			}
			if n := testing.AllocsPerRun(20, func() {
				if err := p.Run(out, x, y, scales, loops.InOrder); err != nil {
					t.Fatal(err)
				}
			}); n > 0 {
				t.Errorf("%v %v: %v allocations", a, s, n)
			}
		}
	}
}

func TestErrors(t *testing.T) {
	row, column := Layout{Cross: []Axis{{2, 3}}, Contracted: []Axis{{3, 1}}},
		Layout{Cross: []Axis{{4, 1}}, Contracted: []Axis{{3, 4}}}
	for what, l := range map[string][2]Layout{
		"contracted sizes": {row, {Cross: column.Cross, Contracted: []Axis{{2, 4}}}},
		"contracted axes":  {row, {Cross: column.Cross}},
		"batch sizes": {{Batch: []Axis{{2, 6}}, Cross: row.Cross, Contracted: row.Contracted},
			column},
		"negative size":      {{Cross: []Axis{{-1, 1}}, Contracted: row.Contracted}, column},
		"negative stride":    {{Cross: []Axis{{2, -3}}, Contracted: row.Contracted}, column},
		"overflowing extent": {{Cross: []Axis{{1 << 40, 1 << 40}}, Contracted: row.Contracted}, column},
		"overflowing size": {{Cross: []Axis{{1 << 32, 0}, {1 << 32, 0}}, Contracted: row.Contracted},
			column},
	} {
		if _, err := New(portable, BFloat16, l[0], l[1]); err == nil {
			t.Errorf("%s: no error", what)
		}
	}
	long := []Axis{{MaxCodes + 1, 0}}
	if _, err := New(portable, Int8, Layout{Contracted: long}, Layout{Contracted: long}); err == nil {
		t.Error("sums beyond 32 bits: no error")
	}
	p, err := New(portable, BFloat16, row, column)
	if err != nil {
		t.Fatal(err)
	}
	codes, err := New(portable, Int8, row, column)
	if err != nil {
		t.Fatal(err)
	}
	out, x, y := make([]float32, 8), make([]float32, 6), make([]float32, 12)
	scaled := func(addend []float32, s Scales) error {
		return codes.Run(Results{Float32: out, Addend: addend}, Elements{Int8: make([]int8, 6)},
			Elements{Int8: make([]int8, 12)}, s, nil)
	}
	for what, err := range map[string]error{
		"output": p.Run(Results{Float32: out[1:]}, Elements{Float32: x}, Elements{Float32: y}, Scales{},
			nil),
		"both": p.Run(Results{Float32: out[:4], BFloat16: make([]uint16, 4)}, Elements{Float32: x},
			Elements{Float32: y}, Scales{}, nil),
		"addend": p.Run(Results{Float32: out, Addend: out[1:]}, Elements{Float32: x},
			Elements{Float32: y}, Scales{}, nil),
		"left": p.Run(Results{Float32: out}, Elements{Float32: x[1:]}, Elements{Float32: y}, Scales{},
			nil),
		"right": p.Run(Results{Float32: out}, Elements{Float32: x}, Elements{Float32: y[1:]}, Scales{},
			nil),
		"kind": p.Run(Results{Float32: out}, Elements{Int8: make([]int8, 6)}, Elements{Float32: y},
			Scales{}, nil),
		"two": p.Run(Results{Float32: out}, Elements{Float32: x, BFloat16: make([]uint16, 6)},
			Elements{Float32: y}, Scales{}, nil),
		"none": p.Run(Results{Float32: out}, Elements{}, Elements{Float32: y}, Scales{}, nil),
		"scaled": p.Run(Results{Float32: out}, Elements{Float32: x}, Elements{Float32: y},
			Scales{Rows: x[:2]}, nil),
		"no rows":  scaled(nil, Scales{Columns: x[:4]}),
		"rows":     scaled(nil, Scales{Rows: x[:1]}),
		"columns":  scaled(nil, Scales{Rows: x[:2], Columns: x[:1]}),
		"sum":      scaled(out, Scales{Rows: x[:2]}),
		"no error": scaled(nil, Scales{Rows: x[:2], Columns: x[:4]}),
	} {
		if (err == nil) != (what == "no error") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestBest(t *testing.T) {
	for _, tier := range Tiers() {
		t.Setenv("CAGE_CPU", tier.Name())
		if best, err := Best(); err != nil || best.Name() != tier.Name() {
			t.Errorf("CAGE_CPU=%s: %v, %v", tier.Name(), best, err)
		}
	}
	t.Setenv("CAGE_CPU", "abacus")
	if _, err := Best(); err == nil {
		t.Error("no error")
	}
	t.Setenv("CAGE_CPU", "")
	if best, err := Best(); err != nil || best.Name() != Tiers()[0].Name() {
		t.Error(best, err)
	}
}

// TestTasksCoverRows checks that tasks cover every row once, begin at panels, and never have more
// rows than the task before.
func TestTasksCoverRows(t *testing.T) {
	for _, c := range []struct{ all, panel, rows, share, least int }{
		{512, 12, 192, 4, 12}, {2048, 12, 192, 4, 12}, {2048, 12, 192, 4, 48}, {97, 12, 192, 4, 12},
		{96, 12, 192, 64, 12},
		{100, 6, 192, 4, 300}, {50, 6, 24, 0, 0}, {12, 12, 48, 0, 0}, {1, 4, 16, 0, 0},
	} {
		tasks := tasks{rows: c.rows, share: c.share, least: c.least}
		next, before := 0, c.rows
		for i := range tasks.countRows(c.all, c.panel) {
			row, rows := tasks.rowsOf(i, c.all, c.panel)
			if row != next || rows < 1 || rows > before || row%c.panel != 0 {
				t.Errorf("%+v: task %d has %d rows from %d on, want them from %d on, at most %d", c, i, rows,
					row, next, before)
			}
			next, before = row+rows, rows
		}
		if next != c.all {
			t.Errorf("%+v: the tasks have %d rows", c, next)
		}
	}
}
