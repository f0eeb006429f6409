package loops_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/cage-qat/cage/host/compute/loops"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// atOnce runs each task in a goroutine.
func atOnce(n int, f func(i int)) {
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() { f(i) })
	}
	group.Wait()
}

func wide(x []float32) []float64 {
	out := make([]float64, len(x))
	for i, v := range x {
		out[i] = float64(v)
	}
	return out
}

// runReference executes an operation with the reference implementation, in float64.
func runReference(
	t *testing.T, op program.Op, result program.Type, args ...reference.Tensor,
) reference.Tensor {
	t.Helper()
	b := program.NewBuilder("reference")
	values, inputs := []program.Value{}, map[string]reference.Tensor{}
	for i, a := range args {
		name := fmt.Sprint("x", i)
		values, inputs[name] = append(values, b.Input(name, a.Type)), a
	}
	b.Output("y", b.Apply(op, program.Attr{}, result, values...))
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	out, err := reference.Run(p, inputs)
	if err != nil {
		t.Fatal(err)
	}
	return out["y"]
}

// grid returns random multiples of 1/8, of which many are equal and whose squared distances are
// exact, and, if special is set, some values that are not finite.
func grid(rng *rand.Rand, n int, special bool) []float32 {
	out := make([]float32, n)
	for i := range out {
		out[i] = float32(rng.IntN(65)-32) / 8
		if special && rng.IntN(16) == 0 {
			out[i] = []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1)),
				float32(math.Copysign(0, -1))}[rng.IntN(4)]
		}
	}
	return out
}

// TestAgainstOracle compares all operations with the reference implementation, on numbers for which
// float32 is exact, with ties and values that are not finite.
func TestAgainstOracle(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		rows, d, n := 1+rng.IntN(90), []int{1, 1, 2, 3, 4, 8, 16, 17}[rng.IntN(8)], 1+rng.IntN(70)
		special := seed%2 == 0
		x, table := grid(rng, rows*d, special), grid(rng, n*d, special)
		index := make([]int32, rows)
		for i := range index {
			index[i] = int32(rng.IntN(n+4) - 2)
		}
		k := rng.IntN(d+3) - 1
		xT, tableT, indexT := reference.Floats(wide(x), rows, d), reference.Floats(wide(table), n, d),
			reference.Ints(index, rows)
		ints := func(name string, got []int32, want reference.Tensor) {
			for i, w := range want.Ints {
				if int64(got[i]) != w {
					t.Fatalf("seed %d, %d rows of %d, table of %d: %s %d is %d, want %d", seed, rows, d, n, name,
						i, got[i], w)
				}
			}
		}
		floats := func(name string, got []float32, want reference.Tensor) {
			for i, w := range want.Floats {
				if g := float64(got[i]); g != w && !(math.IsNaN(g) && math.IsNaN(w)) {
					t.Fatalf("seed %d, %d rows of %d, table of %d: %s %d is %v, want %v", seed, rows, d, n, name,
						i, g, w)
				}
			}
		}
		nearest := make([]int32, rows)
		loops.Nearest(nearest, x, table, d, atOnce)
		ints("nearest", nearest, runReference(t, program.OpNearest, program.Type{}, xT, tableT))
		found := make([]float32, rows*d)
		loops.Lookup(found, index, table, d, atOnce)
		floats("lookup", found, runReference(t, program.OpLookup, program.Type{}, indexT, tableT))
		sums := make([]float32, n*d)
		loops.ScatterAdd(sums, index, x, d, atOnce)
		floats("scatter_add", sums, runReference(t, program.OpScatterAdd, program.FloatType(n, d), indexT,
			xT))
		largest := make([]bool, rows*d)
		loops.TopK(largest, x, d, k, atOnce)
		if want := runReference(t, program.OpTopK, program.Type{}, xT, reference.Int(int32(k))).
			Bools(); !slices.Equal(largest, want) {
			t.Fatalf("seed %d: the %d largest of rows of %d of %v are %v, want %v", seed, k, d, x, largest,
				want)
		}
		at := make([]float32, rows)
		loops.OrderStatistic(at, x, d, k, atOnce)
		floats("order_statistic", at, runReference(t, program.OpOrderStatistic, program.Type{}, xT,
			reference.Int(int32(k))))
	}
}

// TestNearestOfSomeNumbers compares Nearest on random numbers with float64, which is exact for
// numbers of similar size.
func TestNearestOfSomeNumbers(t *testing.T) {
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 2))
		table := make([]float32, 1+rng.IntN(80))
		for i := range table {
			table[i] = rng.Float32() - 0.5
		}
		x := make([]float32, 3000)
		for i := range x {
			x[i] = rng.Float32() - 0.5
			// where two distances are about equal
			if a, b := table[rng.IntN(len(table))], table[rng.IntN(len(table))]; i%2 == 0 {
				x[i] = math.Nextafter32((a+b)/2, float32(rng.IntN(3)-1))
			}
		}
		got := make([]int32, len(x))
		loops.Nearest(got, x, table, 1, atOnce)
		want := runReference(t, program.OpNearest, program.Type{}, reference.Floats(wide(x), len(x)),
			reference.Floats(wide(table), len(table)))
		for i, w := range want.Ints {
			if int64(got[i]) != w {
				t.Fatalf("seed %d: nearest to %v is %v, want %v", seed, x[i], table[got[i]], table[w])
			}
		}
	}
}

// TestNearestOfRandomVectors checks that no row is nearer than the one found, up to rounding.
func TestNearestOfRandomVectors(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	const rows, d, n = 203, 8, 1000
	x, table := normal(rng, rows*d), normal(rng, n*d)
	got := make([]int32, rows)
	loops.Nearest(got, x, table, d, atOnce)
	want := runReference(t, program.OpNearest, program.Type{}, reference.Floats(wide(x), rows, d),
		reference.Floats(wide(table), n, d))
	distance := func(i int, j int64) (sum float64) {
		for k := range d {
			e := float64(x[i*d+k]) - float64(table[int(j)*d+k])
			sum += e * e
		}
		return sum
	}
	for i, w := range want.Ints {
		if g := int64(got[i]); g != w && distance(i, g) > distance(i, w)+1e-5 {
			t.Errorf("row %d: %d is found at the distance %v, %d is at %v", i, g, distance(i, g), w,
				distance(i, w))
		}
	}
}

// TestNearestOfCloseVectors checks that vectors which differ little, compared with their lengths,
// are found.
func TestNearestOfCloseVectors(t *testing.T) {
	for _, table := range [][]float32{{1000, 1000, 1000.2, 1000}, {1, 1, 1.0002, 1},
		{1e30, 0, 1e30, 1e25}} {
		got := make([]int32, 2)
		if loops.Nearest(got, table, table, 2, inTurn); !slices.Equal(got, []int32{0, 1}) {
			t.Errorf("the rows of %v are nearest to its rows %v, want 0 and 1", table, got)
		}
	}
}

func normal(rng *rand.Rand, n int) []float32 {
	out := make([]float32, n)
	for i := range out {
		out[i] = float32(rng.NormFloat64())
	}
	return out
}

func inTurn(n int, f func(i int)) {
	for i := range n {
		f(i)
	}
}

// BenchmarkNearest reports the time per element of x, for tables of numbers and of vectors of 8.
func BenchmarkNearest(b *testing.B) {
	for _, c := range []struct{ n, d int }{{16, 1}, {256, 1}, {256, 8}, {4096, 8}} {
		b.Run(fmt.Sprintf("%dx%d", c.n, c.d), func(b *testing.B) {
			rng := rand.New(rand.NewPCG(5, 6))
			x, table := normal(rng, 1<<16), normal(rng, c.n*c.d)
			dst := make([]int32, len(x)/c.d)
			for b.Loop() {
				loops.Nearest(dst, x, table, c.d, inTurn)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(x)), "ns/element")
		})
	}
}

// BenchmarkOthers reports the time per element.
func BenchmarkOthers(b *testing.B) {
	rng := rand.New(rand.NewPCG(7, 8))
	x, table := normal(rng, 1<<16), normal(rng, 1<<8)
	index, mask, out := make([]int32, len(x)), make([]bool, len(x)), make([]float32, len(x))
	nibbles := make([]int32, len(x))
	for i := range index {
		index[i], nibbles[i] = int32(rng.IntN(len(table))), int32(rng.IntN(16))
	}
	for name, run := range map[string]func(){
		"lookup":          func() { loops.Lookup(out, index, table, 1, inTurn) },
		"lookup in 16":    func() { loops.Lookup(out, nibbles, table[:16], 1, inTurn) },
		"scatter_add":     func() { loops.ScatterAdd(table, index, x, 1, inTurn) },
		"2 of 4":          func() { loops.TopK(mask, x, 4, 2, inTurn) },
		"256 of 512":      func() { loops.TopK(mask, x, 512, 256, inTurn) },
		"median of 512":   func() { loops.OrderStatistic(out[:128], x, 512, 256, inTurn) },
		"median of 65536": func() { loops.OrderStatistic(out[:1], x, 1<<16, 1<<15, inTurn) },
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				run()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(x)), "ns/element")
		})
	}
}

// TestSearch checks that, in a long table, the nearest to a number halfway between two is the one
// with the lower index, also at zeros of both signs.
func TestSearch(t *testing.T) {
	for _, sign := range []float32{1, -1} { // ascending or descending
		table := make([]float32, 100)
		for i := range table {
			table[i] = sign * (float32(i) - 49.5)
		}
		x := []float32{0, float32(math.Copysign(0, -1)), -0.001, 0.001, -60, 60, 7, -7,
			float32(math.Inf(1)), float32(math.NaN())}
		got, want := make([]int32, len(x)), make([]int32, len(x))
		loops.Nearest(got, x, table, 1, atOnce)
		for i, v := range x {
			least := math.Inf(1)
			for j, y := range table {
				if d := math.Abs(float64(v) - float64(y)); d < least {
					least, want[i] = d, int32(j)
				}
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("sign %v: the nearest to %v are %v, want %v", sign, x, got, want)
		}
	}
}
