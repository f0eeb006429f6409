package linalg

import (
	"crypto/sha256"
	"fmt"
	"testing"

	"go.uber.org/goleak"
)

// runs returns functions that call each kernel with vectors of n elements.
func (k kernels) runs(n int) map[string]func() {
	x, y := normal(1, 8, n), normal(2, 8, n)
	a, b, c := singles(1, 8, n, n), singles(2, 8, n, n), singles(3, 8, n, n)
	tile, tileSingle := make([]float64, maxTileRows*maxTileCols),
		make([]float32, maxTileRows*maxTileCols)
	halves, _ := ToBFloat16(make([]float32, 8*n), 8, n)
	return map[string]func(){
		"dot":         func() { k.double.dot(x.row(0), y.row(0)) },
		"axpy":        func() { k.double.axpy(1e-9, x.row(0), y.row(0)) },
		"tile":        func() { k.double.tile(n/8, x.Data, y.Data, tile, maxTileCols) },
		"dot single":  func() { k.single.dot(a.row(0), b.row(0)) },
		"axpy single": func() { k.single.axpy(1e-9, a.row(0), b.row(0)) },
		"tile single": func() { k.single.tile(n/8, a.Data, b.Data, tileSingle, maxTileCols) },
		"four": func() {
			k.four(x.row(0), x.row(1), x.row(2), x.row(3), y.row(0), y.row(1), &[4]float64{1e-9})
		},
		"few": func() { k.few(c.part(0, 1, 0, 8), a.part(0, 1, 0, n), b) },
		"few in halves": func() {
			if k.fewBFloat16 != nil {
				k.fewBFloat16(c.part(0, 1, 0, 8), a.part(0, 1, 0, n), halves)
			}
		},
		"secular": func() { k.secular(x.row(0), y.row(0), 1, 1e-3) },
	}
}

func BenchmarkKernels(b *testing.B) {
	for _, k := range supported() {
		for _, n := range []int{64, 1024} {
			for name, run := range k.runs(n) {
				b.Run(fmt.Sprintf("%s/%s/%d", k.name, name, n), func(b *testing.B) {
					for b.Loop() {
						run()
					}
				})
			}
		}
	}
}

// BenchmarkHashBehindKernels hashes 4 KiB immediately after each kernel. If a kernel leaves the
// upper halves of vector registers in use, this takes many times as long as after the portable
// kernel: SHA-256, like [math.Exp], mixes SSE and AVX instructions, and each transition between
// them is then slow.
func BenchmarkHashBehindKernels(b *testing.B) {
	data := make([]byte, 4<<10)
	for _, k := range supported() {
		for name, run := range k.runs(64) {
			b.Run(k.name+"/"+name, func(b *testing.B) {
				b.SetBytes(int64(len(data)))
				for b.Loop() {
					run()
					sha256.Sum256(data)
				}
			})
		}
	}
}

// TestMain fails when a goroutine outlives the tests.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
