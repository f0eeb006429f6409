package attention_test

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cage-qat/cage/host/compute/attention"
	"github.com/cage-qat/cage/host/compute/loops"
	"github.com/cage-qat/cage/host/compute/matmul"
	"github.com/cage-qat/cage/internal/testing/testlevel"
)

// reference returns attention and its gradient, computed in float64 from the definition. sizes
// holds the same sums with the magnitudes of their terms; errors are relative to sizes.
func reference(
	s attention.Sizes, in attention.Inputs, dOutput []float32,
) (values, sizes [4][]float64) {
	for i, n := range []int{in.Query.Len(), in.Query.Len(), in.Key.Len(), in.Key.Len()} {
		values[i], sizes[i] = make([]float64, n), make([]float64, n)
	}
	add := func(output, at int, x float64, size float64) {
		values[output][at] += x
		sizes[output][at] += math.Abs(size)
	}
	scale := cmp.Or(s.Scale, 1/math.Sqrt(float64(s.Size)))
	for batch := range s.Batch {
		for head := range s.Heads {
			query := func(i int) int { return ((batch*s.Context+i)*s.Heads + head) * s.Size }
			key := func(i int) int {
				return ((batch*s.Context+i)*s.KeyHeads + head*s.KeyHeads/s.Heads) * s.Size
			}
			for i := range s.Context {
				weights, slopes, sum := make([]float64, i+1), slices.Repeat([]float64{1}, i+1), 0.0
				for j := range weights {
					if in.Segments != nil && in.Segments[batch*s.Context+i] != in.Segments[batch*s.Context+j] {
						continue
					}
					if s.Window > 0 && i-j >= s.Window {
						continue
					}
					dot := 0.0
					for d := range s.Size {
						dot += float64(in.Query.Float32[query(i)+d]) * float64(in.Key.Float32[key(j)+d])
					}
					score := dot * scale
					if s.Cap > 0 {
						tanh := math.Tanh(score / s.Cap)
						score, slopes[j] = s.Cap*tanh, 1-tanh*tanh
					}
					weights[j] = math.Exp(score)
					sum += weights[j]
				}
				mean, meanSize := 0.0, 0.0
				dWeights, dSizes := make([]float64, i+1), make([]float64, i+1)
				for j := range weights {
					weights[j] /= sum
					for d := range s.Size {
						v, dm := float64(in.Value.Float32[key(j)+d]), float64(dOutput[query(i)+d])
						add(0, query(i)+d, weights[j]*v, weights[j]*v)
						add(3, key(j)+d, weights[j]*dm, weights[j]*dm)
						dWeights[j] += dm * v
						dSizes[j] += math.Abs(dm * v)
					}
					mean += weights[j] * dWeights[j]
					meanSize += weights[j] * dSizes[j]
				}
				for j := range weights {
					dScore := weights[j] * (dWeights[j] - mean) * scale * slopes[j]
					size := weights[j] * (dSizes[j] + meanSize) * scale
					for d := range s.Size {
						q, k := float64(in.Query.Float32[query(i)+d]), float64(in.Key.Float32[key(j)+d])
						add(1, query(i)+d, dScore*k, size*k)
						add(2, key(j)+d, dScore*q, size*q)
					}
				}
			}
		}
	}
	return values, sizes
}

func random(rng *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(rng.NormFloat64())
	}
	return x
}

func inputs(rng *rand.Rand, s attention.Sizes) (attention.Inputs, []float32) {
	positions := s.Batch * s.Context
	return attention.Inputs{
		Query: matmul.Elements{Float32: random(rng, positions*s.Heads*s.Size)},
		Key:   matmul.Elements{Float32: random(rng, positions*s.KeyHeads*s.Size)},
		Value: matmul.Elements{Float32: random(rng, positions*s.KeyHeads*s.Size)},
	}, random(rng, positions*s.Heads*s.Size)
}

// TestShortInputs checks that queries, keys and values in bfloat16 give the same bits as float32
// values, which products round to bfloat16.
func TestShortInputs(t *testing.T) {
	s := attention.Sizes{Batch: 2, Context: 83, Heads: 4, KeyHeads: 2, Size: 24}
	for _, tier := range matmul.Tiers() {
		p, err := attention.New(tier, matmul.BFloat16, s)
		if err != nil {
			t.Fatal(err)
		}
		in, dOutput := inputs(rand.New(rand.NewPCG(5, 6)), s)
		short := in
		for _, e := range []*matmul.Elements{&short.Query, &short.Key, &short.Value} {
			to := make([]uint16, e.Len())
			loops.ToBFloat16(to, e.Float32)
			*e = matmul.Elements{BFloat16: to}
		}
		want, got := outputs(t, p, in, dOutput, inTurn), outputs(t, p, short, dOutput, inTurn)
		for i := range want {
			if !slices.Equal(got[i], want[i]) {
				t.Errorf("%s: output %d has other bits", tier.Name(), i)
			}
		}
	}
}

// TestShortOutputs checks that an output in bfloat16 is the rounded float32 output, and that the
// output and its adjoint give the same adjoints in bfloat16 as in float32.
func TestShortOutputs(t *testing.T) {
	for _, s := range []attention.Sizes{{Batch: 2, Context: 83, Heads: 4, KeyHeads: 2, Size: 24},
		{Batch: 1, Context: 33, Heads: 1, KeyHeads: 1, Size: 10}} {
		for _, tier := range matmul.Tiers() {
			p, err := attention.New(tier, matmul.BFloat16, s)
			if err != nil {
				t.Fatal(err)
			}
			in, d := inputs(rand.New(rand.NewPCG(7, 8)), s)
			dShort, short, rounded := make([]uint16, len(d)), make([]uint16, len(d)), make([]uint16, len(d))
			loops.ToBFloat16(dShort, d)
			loops.FromBFloat16(d, dShort)
			output, logs := make([]float32, len(d)), make([]float32, p.Logs())
			forward := func(to matmul.Elements, parallel loops.Parallel) {
				if err := p.Forward(to, logs, in, parallel); err != nil {
					t.Fatal(err)
				}
			}
			backward := func(output, d matmul.Elements, parallel loops.Parallel) [3][]float32 {
				x := [3][]float32{make([]float32, in.Query.Len()), make([]float32, in.Key.Len()),
					make([]float32, in.Key.Len())}
				if err := p.Backward(attention.Adjoints{Query: x[0], Key: x[1], Value: x[2]}, in, output, logs,
					d, parallel); err != nil {
					t.Fatal(err)
				}
				return x
			}
			forward(matmul.Elements{Float32: output}, inTurn)
			forward(matmul.Elements{BFloat16: short}, atOnce)
			if loops.ToBFloat16(rounded, output); !slices.Equal(short, rounded) {
				t.Errorf("%s %+v: the output has other bits", tier.Name(), s)
			}
			loops.FromBFloat16(output, short) // both backward passes get equal values
			want := backward(matmul.Elements{Float32: output}, matmul.Elements{Float32: d}, inTurn)
			for i, got := range backward(matmul.Elements{BFloat16: short}, matmul.Elements{BFloat16: dShort},
				atOnce) {
				if !slices.Equal(got, want[i]) {
					t.Errorf("%s %+v: adjoint %d has other bits", tier.Name(), s, i)
				}
			}
		}
	}
}

// outputs runs both passes on memory filled with NaN.
func outputs(
	t testing.TB, p *attention.Plan, in attention.Inputs, dOutput []float32,
	parallel func(int, func(int)),
) [][]float32 {
	t.Helper()
	out := [][]float32{make([]float32, in.Query.Len()), make([]float32, in.Query.Len()),
		make([]float32, in.Key.Len()), make([]float32, in.Key.Len())}
	logs := make([]float32, p.Logs())
	for _, x := range append(out, logs) {
		for i := range x {
			x[i] = float32(math.NaN())
		}
	}
	if err := p.Forward(matmul.Elements{Float32: out[0]}, logs, in, parallel); err != nil {
		t.Fatal(err)
	}
	if err := p.Backward(attention.Adjoints{Query: out[1], Key: out[2], Value: out[3]}, in,
		matmul.Elements{Float32: out[0]}, logs, matmul.Elements{Float32: dOutput}, parallel); err != nil {
		t.Fatal(err)
	}
	return out
}

func inTurn(n int, f func(int)) {
	for i := range n {
		f(i)
	}
}

// atOnce runs each task on its own goroutine, and starts the last task first.
func atOnce(n int, f func(int)) {
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() { f(n - 1 - i) })
	}
	group.Wait()
}

// tolerances are relative to the norm of the sums of magnitudes. In bfloat16, all operands,
// including weights and adjoints of scores, are rounded to 8 bits: each factor of two or three
// consecutive products has a relative error of 2⁻⁹. In float32, the rounded sums of a few hundred
// terms, and the exponential of scores up to 8, have errors of a few units of 2⁻²⁴.
var tolerances = map[matmul.Arithmetic]float64{matmul.BFloat16: 1. / (1 << 7),
	matmul.Float32: 1. / (1 << 20)}

// TestReference compares attention with the definition. It also checks that all tiers without
// bfloat16 instructions give the same bits, in float32 all with vector instructions, and that each
// tier does in any order of tasks.
func TestReference(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, s := range []attention.Sizes{
		{Batch: 1, Context: 1, Heads: 1, KeyHeads: 1, Size: 1},
		{Batch: 2, Context: 5, Heads: 3, KeyHeads: 3, Size: 4},
		{Batch: 1, Context: 47, Heads: 2, KeyHeads: 1, Size: 8},
		{Batch: 2, Context: 193, Heads: 4, KeyHeads: 2, Size: 20},
		{Batch: 1, Context: 400, Heads: 2, KeyHeads: 2, Size: 64},
		{Batch: 1, Context: 610, Heads: 2, KeyHeads: 1, Size: 12},
		// Odd numbers of positions or elements, close to the widths of panels and blocks.
		{Batch: 1, Context: 2, Heads: 1, KeyHeads: 1, Size: 3},
		{Batch: 1, Context: 31, Heads: 2, KeyHeads: 1, Size: 7},
		{Batch: 1, Context: 33, Heads: 3, KeyHeads: 1, Size: 130},
		{Batch: 2, Context: 65, Heads: 6, KeyHeads: 2, Size: 33},
		{Batch: 1, Context: 257, Heads: 1, KeyHeads: 1, Size: 1},
		{Batch: 1, Context: 289, Heads: 2, KeyHeads: 2, Size: 13},
		// Windows shorter and longer than a block of positions and than a panel, and of one token.
		{Batch: 2, Context: 193, Heads: 4, KeyHeads: 2, Size: 20, Window: 37},
		{Batch: 1, Context: 610, Heads: 2, KeyHeads: 1, Size: 12, Window: 5},
		{Batch: 1, Context: 901, Heads: 1, KeyHeads: 1, Size: 9, Window: 300},
		{Batch: 1, Context: 33, Heads: 2, KeyHeads: 1, Size: 7, Window: 1},
		{Batch: 1, Context: 31, Heads: 2, KeyHeads: 1, Size: 7, Window: 31},
		// Factors and caps of scores.
		{Batch: 2, Context: 65, Heads: 6, KeyHeads: 2, Size: 33, Scale: 0.7, Cap: 2},
		{Batch: 1, Context: 610, Heads: 2, KeyHeads: 1, Size: 12, Window: 37, Cap: 0.5},
	} {
		for _, documents := range []int{0, 1, 3} {
			if testing.Short() && s.Context >= 190 && documents < 3 {
				continue
			}
			in, dOutput := inputs(rng, s)
			if documents > 0 {
				for i := range s.Batch * s.Context {
					in.Segments = append(in.Segments, int32(i%s.Context*documents/s.Context))
				}
			}
			if documents > 1 && s.Context > 2 { // tokens of a document may be apart
				in.Segments[0], in.Segments[s.Context-1] = 7, 7
			}
			values, sizes := reference(s, in, dOutput)
			first := map[string][][]float32{}
			for _, tier := range matmul.Tiers() {
				// The portable tier is slow. It computes no contexts of 400, and contexts of 610 or more with
				// three documents only. In short mode, it computes contexts above 190 with three documents
				// only, and none above 300.
				leftOut := s.Context == 400 || s.Context >= 610 && documents < 3
				leftOut = testlevel.Sample(s.Context > 190 && (documents < 3 || s.Context > 300), leftOut,
					false)
				if tier.IsPortable() && leftOut {
					continue
				}
				for arithmetic, tolerance := range tolerances {
					t.Run(fmt.Sprint(tier.Name(), s, documents, arithmetic), func(t *testing.T) {
						p, err := attention.New(tier, arithmetic, s)
						if err != nil {
							t.Fatal(err)
						}
						got := outputs(t, p, in, dOutput, inTurn)
						for i, want := range values {
							if apart := distance(got[i], want, sizes[i]); !(apart <= tolerance) {
								t.Errorf("output %d: relative error %.2g", i, apart)
							}
						}
						kind := arithmetic.String()
						if arithmetic == matmul.BFloat16 && tier.HasBFloat16() ||
							arithmetic == matmul.Float32 && tier.IsPortable() {
							// Instructions for bfloat16 sum in other orders. In float32, plain Go rounds products.
							kind = tier.Name()
						}
						if first[kind] == nil {
							first[kind] = got
						}
						for i, again := range outputs(t, p, in, dOutput, atOnce) {
							if !slices.Equal(again, got[i]) {
								t.Errorf("output %d has other bits if tasks run at once", i)
							}
							if !slices.Equal(got[i], first[kind][i]) {
								t.Errorf("output %d has other bits than with other kernels", i)
							}
						}
					})
				}
			}
		}
	}
}

// TestLongWindow checks that tokens before all windows change no bits. Their number is a multiple
// of 256 and 288, so that the remaining tokens are in the same places of blocks without them.
func TestLongWindow(t *testing.T) {
	const before = 2304
	long := attention.Sizes{Batch: 1, Context: before + 801, Heads: 2, KeyHeads: 1, Size: 5,
		Window: 99}
	short := long
	short.Context -= before
	rng := rand.New(rand.NewPCG(10, 11))
	in, dOutput := inputs(rng, long)
	rest := attention.Inputs{Query: in.Query.From(before * long.Heads * long.Size),
		Key: in.Key.From(before * long.Size), Value: in.Value.From(before * long.Size)}
	dRest := dOutput[before*long.Heads*long.Size:]
	for _, tier := range matmul.Tiers() {
		for arithmetic := range tolerances {
			var got [2][][]float32
			for i, s := range []attention.Sizes{long, short} {
				p, err := attention.New(tier, arithmetic, s)
				if err != nil {
					t.Fatal(err)
				}
				got[i] = outputs(t, p, []attention.Inputs{in, rest}[i], [][]float32{dOutput, dRest}[i], atOnce)
			}
			// The windows of the first 288 tokens begin in blocks with tokens before them.
			n := (short.Context - 288) * long.Heads * long.Size
			for output, name := range []string{"output", "adjoint of queries"} {
				a, b := got[0][output], got[1][output]
				if !slices.Equal(a[len(a)-n:], b[len(b)-n:]) {
					t.Errorf("%s in %v: the %s has other bits after more tokens", tier.Name(), arithmetic, name)
				}
			}
		}
	}
}

// distance returns the norm of the difference, relative to the norm of sizes.
func distance(got []float32, want, sizes []float64) float64 {
	difference, norm := 0.0, 0.0
	for i, w := range want {
		difference += (float64(got[i]) - w) * (float64(got[i]) - w)
		norm += sizes[i] * sizes[i]
	}
	if difference == 0 {
		return 0
	}
	return math.Sqrt(difference / norm)
}

// TestNaN checks that a NaN in a key reaches exactly the outputs that depend on it.
func TestNaN(t *testing.T) {
	s := attention.Sizes{Batch: 1, Context: 100, Heads: 2, KeyHeads: 2, Size: 16}
	tier, err := matmul.Best()
	if err != nil {
		t.Fatal(err)
	}
	p, err := attention.New(tier, matmul.BFloat16, s)
	if err != nil {
		t.Fatal(err)
	}
	in, dOutput := inputs(rand.New(rand.NewPCG(3, 4)), s)
	in.Key.Float32[(60*s.KeyHeads+1)*s.Size] = float32(math.NaN())
	output := outputs(t, p, in, dOutput, inTurn)[0]
	for i, x := range output {
		position, head := i/s.Size/s.Heads, i/s.Size%s.Heads
		if isNaN := x != x; isNaN != (head == 1 && position >= 60) {
			t.Fatalf("position %d, head %d: %v", position, head, x)
		}
	}
}

// TestNotFinite checks that a NaN or infinity makes the same results not finite in words of one
// element and of two.
func TestNotFinite(t *testing.T) {
	pairs, err := matmul.Named("avx512bf16")
	if err != nil {
		t.Skip(err)
	}
	singles, err := matmul.Named("avx512") // has tiles of the same sizes
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(8, 9))
	for _, s := range []attention.Sizes{{Batch: 1, Context: 75, Heads: 2, KeyHeads: 1, Size: 5},
		{Batch: 1, Context: 300, Heads: 1, KeyHeads: 1, Size: 16}} {
		for trial := range 40 {
			in, dOutput := inputs(rng, s)
			if trial%2 == 0 {
				for i := range s.Context {
					in.Segments = append(in.Segments, int32(i*3/s.Context))
				}
			}
			x := [][]float32{in.Query.Float32, in.Key.Float32, in.Value.Float32, dOutput}[trial/2%4]
			x[rng.IntN(len(x))] = float32([]float64{math.NaN(), math.Inf(1), math.Inf(-1)}[trial%3])
			var got [2][][]float32
			for i, tier := range []*matmul.Tier{pairs, singles} {
				p, err := attention.New(tier, matmul.BFloat16, s)
				if err != nil {
					t.Fatal(err)
				}
				got[i] = outputs(t, p, in, dOutput, inTurn)
			}
			for output, a := range got[0] {
				for i, b := range got[1][output] {
					if (a[i]-a[i] == 0) != (b-b == 0) {
						t.Fatalf("%+v, trial %d: element %d of output %d is %v, want one like %v", s, trial, i,
							output, a[i], b)
					}
				}
			}
		}
	}
}

func TestErrors(t *testing.T) {
	tier, err := matmul.Best()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := attention.New(tier, matmul.BFloat16,
		attention.Sizes{Batch: 1, Context: 4, Heads: 3, KeyHeads: 2, Size: 8}); err == nil {
		t.Error("3 heads on 2 passed")
	}
	s := attention.Sizes{Batch: 1, Context: 4, Heads: 2, KeyHeads: 2, Size: 8}
	if _, err := attention.New(tier, matmul.Int8, s); err == nil {
		t.Error("products of integers passed")
	}
	p, err := attention.New(tier, matmul.BFloat16, s)
	if err != nil {
		t.Fatal(err)
	}
	in, d := inputs(rand.New(rand.NewPCG(5, 6)), s)
	if err := p.Forward(matmul.Elements{Float32: d[1:]}, make([]float32, p.Logs()), in,
		inTurn); err == nil {
		t.Error("a short output passed")
	}
	short := attention.Adjoints{Query: d, Key: d, Value: d[1:]}
	if err := p.Backward(short, in, matmul.Elements{Float32: d}, make([]float32, p.Logs()),
		matmul.Elements{Float32: d}, inTurn); err == nil {
		t.Error("a short adjoint of values passed")
	}
	in.Segments = make([]int32, 3)
	if err := p.Forward(matmul.Elements{Float32: d}, make([]float32, p.Logs()), in,
		inTurn); err == nil {
		t.Error("short segments passed")
	}
}

// BenchmarkAttention reports the rate of the fastest run, which other load on the machine changes
// least. It counts the operations that causal attention needs, including the backward pass's
// products that recompute the weights.
func BenchmarkAttention(b *testing.B) {
	tier, err := matmul.Best()
	if err != nil {
		b.Fatal(err)
	}
	for _, s := range []attention.Sizes{
		{Batch: 8, Context: 256, Heads: 4, KeyHeads: 4, Size: 64},
		{Batch: 2, Context: 512, Heads: 9, KeyHeads: 3, Size: 64},
		{Batch: 1, Context: 2048, Heads: 9, KeyHeads: 3, Size: 64},
		{Batch: 1, Context: 2048, Heads: 9, KeyHeads: 3, Size: 64, Window: 512},
		{Batch: 2, Context: 512, Heads: 9, KeyHeads: 3, Size: 64, Cap: 50},
	} {
		in, dOutput := inputs(rand.New(rand.NewPCG(7, 8)), s)
		p, err := attention.New(tier, matmul.BFloat16, s)
		if err != nil {
			b.Fatal(err)
		}
		output, logs := matmul.Elements{Float32: make([]float32, in.Query.Len())},
			make([]float32, p.Logs())
		out := attention.Adjoints{Query: make([]float32, in.Query.Len()),
			Key: make([]float32, in.Key.Len()), Value: make([]float32, in.Key.Len())}
		work := 4 * float64(s.Batch*s.Heads*s.Context) * float64(s.Context) / 2 * float64(s.Size)
		for _, pass := range []struct {
			name string
			work float64
			run  func() error
		}{
			{"forward", work, func() error { return p.Forward(output, logs, in, inTurn) }},
			{"backward", 2.5 * work,
				func() error {
					return p.Backward(out, in, output, logs, matmul.Elements{Float32: dOutput}, inTurn)
				}},
		} {
			b.Run(fmt.Sprintf("%s/%d·%d·%d", pass.name, s.Batch, s.Context, s.Heads), func(b *testing.B) {
				best := time.Duration(math.MaxInt64)
				for b.Loop() {
					start := time.Now()
					if err := pass.run(); err != nil {
						b.Fatal(err)
					}
					best = min(best, time.Since(start))
				}
				b.ReportMetric(best.Seconds()*1e3, "best-ms")
				b.ReportMetric(pass.work/best.Seconds()/1e9, "best-GFLOP/s")
			})
		}
	}
}
