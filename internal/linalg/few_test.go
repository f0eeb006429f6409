package linalg

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// singles returns a matrix of random numbers that bfloat16 represents exactly, with the given row
// stride.
func singles(seed uint64, rows, cols, stride int) MatrixOf[float32] {
	rng := rand.New(rand.NewPCG(seed, 2))
	m := MatrixOf[float32]{Rows: rows, Cols: cols, RowStride: stride, ColStride: 1,
		Data: make([]float32, rows*stride)}
	for i := range m.Data {
		m.Data[i] = math.Float32frombits(math.Float32bits(float32(rng.NormFloat64())) &^ (1<<16 - 1))
	}
	return m
}

// TestFewTimes compares products of several sizes with the definition. Their bits must be the same
// with weights in float32 and bfloat16, and for a row alone and among others. Nothing may be
// written behind a row of y.
func TestFewTimes(t *testing.T) {
	each(t, func(t *testing.T) {
		for _, n := range [][3]int{{1, 4, 16}, {1, 1, 1}, {2, 5, 17}, {3, 9, 64}, {4, 8, 15}, {7, 6, 33},
			{9, 3, 100}, {19, 13, 576}, {2, 4, 0}} {
			rows, outs, inner := n[0], n[1], n[2]
			x, w := singles(1, rows, inner, inner+3), singles(2, outs, inner, inner)
			const mark = 77
			y := MatrixOf[float32]{Rows: rows, Cols: outs, RowStride: outs + 2, ColStride: 1,
				Data: make([]float32, rows*(outs+2))}
			for i := range y.Data {
				y.Data[i] = mark
			}
			FewTimes(y, x, w)
			halves, ok := ToBFloat16(w.Data, outs, inner)
			if !ok {
				t.Fatal("numbers of bfloat16 cannot be kept in it")
			}
			same := RowMajor(make([]float32, rows*outs), rows, outs)
			if HasBFloat16() {
				FewTimesBFloat16(same, x, halves)
			} else {
				FewTimes(same, x, w)
			}
			for i := range rows {
				alone := RowMajor(make([]float32, outs), 1, outs)
				FewTimes(alone, x.Part(i, i+1), w)
				for j := range outs {
					sum, size := 0.0, 0.0
					for k := range inner {
						p := float64(x.at(i, k)) * float64(w.at(j, k))
						sum, size = sum+p, size+math.Abs(p)
					}
					got := y.at(i, j)
					if math.Abs(float64(got)-sum) > 1e-6*size {
						t.Fatalf("%v: element (%d, %d) is %v, want %v", n, i, j, got, sum)
					}
					if same.at(i, j) != got || alone.Data[j] != got {
						t.Fatalf("%v: element (%d, %d) is %v, with halves %v, alone %v", n, i, j, got, same.at(i, j),
							alone.Data[j])
					}
				}
				for _, v := range y.Data[i*y.RowStride+outs : (i+1)*y.RowStride] {
					if v != mark {
						t.Fatalf("%v: %v was written behind row %d", n, v, i)
					}
				}
			}
		}
	})
}

func TestVectorTimes(t *testing.T) {
	each(t, func(t *testing.T) {
		for _, n := range [][2]int{{1, 1}, {3, 64}, {5, 100}, {40, 40}, {0, 7}} {
			x, m := singles(1, 1, n[0], n[0]), singles(2, n[0], n[1], n[1]+1)
			y := []float32{1, 2, 3}
			y = append(y, make([]float32, 200)...)[:n[1]]
			VectorTimes(y, x.Data, m)
			for j, got := range y {
				sum, size := 0.0, 0.0
				for i, v := range x.Data {
					p := float64(v) * float64(m.at(i, j))
					sum, size = sum+p, size+math.Abs(p)
				}
				if math.Abs(float64(got)-sum) > 1e-6*size {
					t.Fatalf("%v: element %d is %v, want %v", n, j, got, sum)
				}
			}
		}
	})
}

func TestToBFloat16Refuses(t *testing.T) {
	if _, ok := ToBFloat16([]float32{1, 1.0000001}, 1, 2); ok {
		t.Error("a number that bfloat16 does not have is kept in it")
	}
	h, ok := ToBFloat16([]float32{1, -2.5, float32(math.Inf(1)), 3}, 2, 2)
	row := h.Part(1, 2).Data
	if !ok || row[0] != 0x7f80 || row[1] != 0x4040 {
		t.Errorf("the second row is %v, %v", row, ok)
	}
}

// BenchmarkFewTimes multiplies rows by weights that exceed the caches: those of a layer of a model
// with 135 million parameters.
func BenchmarkFewTimes(b *testing.B) {
	const outs, inner = 49152, 576
	w := singles(1, outs, inner, inner)
	halves, _ := ToBFloat16(w.Data, outs, inner)
	for _, rows := range []int{1, 2, 4, 8, 16} {
		x, y := singles(2, rows, inner, inner), RowMajor(make([]float32, rows*outs), rows, outs)
		for name, run := range map[string]func(){
			"float32":  func() { FewTimes(y, x, w) },
			"bfloat16": func() { FewTimesBFloat16(y, x, halves) },
		} {
			if name == "bfloat16" && !HasBFloat16() {
				continue
			}
			b.Run(fmt.Sprintf("%d rows, %s", rows, name), func(b *testing.B) {
				b.SetBytes(4 * outs * inner)
				for b.Loop() {
					run()
				}
			})
		}
	}
}
