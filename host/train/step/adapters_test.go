package step

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/stage"
	"github.com/cage-qat/cage/host/model/lora"
	"github.com/cage-qat/cage/host/testing/testdevice"
	"github.com/cage-qat/cage/host/testing/teststage"
	"github.com/cage-qat/cage/sdk/program"
)

// table is a matrix of random numbers, stored by rows.
type table struct {
	rows, cols int
	data       []float32
}

func randomTable(rng *rand.Rand, dims []int) table {
	m := table{dims[0], dims[1], make([]float32, dims[0]*dims[1])}
	for i := range m.data {
		m.data[i] = float32(rng.NormFloat64())
	}
	return m
}

func (m table) at(i, j int) float64 { return float64(m.data[i*m.cols+j]) }

// TestMerge compares the merged weight and the adjoints of the factors with their definitions, for
// a fused weight and for a weight with a single part.
func TestMerge(t *testing.T) {
	dev := testdevice.Open(t, engine.Options{})
	part := func(rows, rank int, scale float64) lora.Part {
		return lora.Part{Rows: make([]int, rows), Rank: rank, Scale: scale}
	}
	for name, parts := range map[string][]lora.Part{
		"fused":    {part(6, 3, 0.5), part(2, 3, 0.5), part(2, 3, 0.5)},
		"patterns": {part(6, 2, 0.5), part(2, 3, 2), part(2, 1, 0.25)},
		"single":   {part(10, 3, 0.5)},
	} {
		t.Run(name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(1, 2))
			a := lora.Adapter{Weight: "w", Parts: parts, In: 7}
			w, d := randomTable(rng, []int{10, 7}), randomTable(rng, []int{10, 7})
			A, B := randomTable(rng, a.A().Dims), randomTable(rng, a.B().Dims)
			var in []*engine.Buffer
			for _, m := range []table{w, A, B, d} {
				in = append(in, testdevice.Upload(t, dev, m.data, m.rows, m.cols))
			}
			out := teststage.Compute(t, dev, stage.Calls{}, in,
				func(_ *program.Builder, in []program.Value) []program.Value {
					dA, dB := factorAdjoints(a, in[3], in[1], in[2])
					return []program.Value{merge(a, in[0], in[1], in[2]), dA, dB}
				})
			merged, wantA, wantB := make([]float64, 70), make([]float64, len(A.data)),
				make([]float64, len(B.data))
			row, first := 0, 0
			for _, p := range parts {
				for range p.Rows {
					for j := range a.In {
						merged[row*a.In+j] = w.at(row, j)
						for k := range p.Rank {
							of := first + k
							merged[row*a.In+j] += p.Scale * B.at(row, k) * A.at(of, j)
							wantA[of*a.In+j] += p.Scale * B.at(row, k) * d.at(row, j)
							wantB[row*B.cols+k] += p.Scale * d.at(row, j) * A.at(of, j)
						}
					}
					row++
				}
				first += p.Rank
			}
			for i, want := range [][]float64{merged, wantA, wantB} {
				for j, v := range out[i] {
					if math.Abs(float64(v)-want[j]) > 1e-5 {
						t.Errorf("result %d: element %d is %v, want %v", i, j, v, want[j])
					}
				}
			}
			on, err := MergeAdapter(dev, a, w.data, A.data, B.data)
			if err != nil {
				t.Fatal(err)
			}
			for i, v := range on {
				if v != out[0][i] {
					t.Fatalf("MergeAdapter computes %v for element %d, want %v", v, i, out[0][i])
				}
			}
		})
	}
}
