package matmul

import (
	"math/rand/v2"
	"testing"
)

// FuzzProduct tries sizes, layouts, kinds of elements and numbers on every tier.
func FuzzProduct(f *testing.F) {
	f.Add(uint8(2), uint16(7), uint16(33), uint16(65), uint8(3), uint8(1), uint8(0), uint64(1))
	f.Add(uint8(1), uint16(100), uint16(40), uint16(300), uint8(0), uint8(0), uint8(6), uint64(2))
	f.Add(uint8(2), uint16(70), uint16(41), uint16(260), uint8(3), uint8(1), uint8(8), uint64(4))
	f.Add(uint8(1), uint16(30), uint16(40), uint16(9), uint8(0), uint8(0), uint8(12), uint64(5))
	f.Add(uint8(30), uint16(12), uint16(16), uint16(8), uint8(5), uint8(2), uint8(1), uint64(3))
	f.Fuzz(func(t *testing.T, batch uint8, m, n, k uint16, order, gap, kind uint8, seed uint64) {
		s := shape{batch: []int{int(batch%40) + 1}, m: []int{int(m % 300)}, n: []int{int(n % 300)},
			k: []int{int(k % 1500)}, gap: int(gap % 9)}
		if product(s.batch)*s.m[0]*s.n[0]*s.k[0] > 1<<21 {
			t.Skip("takes long")
		}
		orders := permutations(3)
		s.left, s.right = orders[int(order)%6], orders[int(order)/6%6]
		r := rand.New(rand.NewPCG(seed, 1))
		a := floatArithmetics[kind/8%2]
		for _, tier := range Tiers() {
			switch limit := []int{1, 7, 15, 60, 127}[seed%5]; kind % 8 {
			case 0, 1, 2, 3:
				names := [2]string{"float32", "bfloat16"}
				checkFloats(t, tier, a, s, [2]string{names[kind%2], names[kind/2%2]}, seed%2 == 0, normal(r))
			case 4:
				checkFloats(t, tier, a, s, [2]string{"float32", "float32"}, seed%2 == 0, wild(r))
			default:
				checkCodes(t, tier, s, seed%2 == 0, codes(r, limit), codes(r, limit))
			}
		}
	})
}
