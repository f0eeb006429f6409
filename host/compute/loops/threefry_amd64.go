//go:build amd64 && goexperiment.simd

package loops

import "simd/archsimd"

// A counters8 holds one of the two words of eight counters.
type counters8 = archsimd.Uint32x8

func round1(x0, x1 counters8, by uint64) (counters8, counters8) {
	x0 = x0.Add(x1)
	return x0, x1.ShiftAllLeft(by).Or(x1.ShiftAllRight(32 - by)).Xor(x0)
}

// rounds4 computes four rounds, with the first or the second half of the rotation distances.
func rounds4(x0, x1 counters8, a, b, c, d uint64) (counters8, counters8) {
	x0, x1 = round1(x0, x1, a)
	x0, x1 = round1(x0, x1, b)
	x0, x1 = round1(x0, x1, c)
	return round1(x0, x1, d)
}

// bits256 computes 16 words at a time and returns the number of words computed.
func bits256(dst []uint32, key [2]uint32, first uint32) int {
	if !hasAVX2 {
		return 0
	}
	n := len(dst) &^ 15
	third := parity ^ key[0] ^ key[1]
	k0, k1, k2 := archsimd.BroadcastUint32x8(key[0]), archsimd.BroadcastUint32x8(key[1]),
		archsimd.BroadcastUint32x8(third)
	one := archsimd.BroadcastUint32x8(1)
	two := one.Add(one)
	three, four := two.Add(one), two.Add(two)
	after := [5]counters8{k2.Add(one), k0.Add(two), k1.Add(three), k2.Add(four), k0.Add(four).Add(one)}
	counters := [8]uint32{0, 1, 2, 3, 4, 5, 6, 7}
	c0 := archsimd.LoadUint32x8Array(&counters).Add(archsimd.BroadcastUint32x8(first)).Add(k0)
	eight := archsimd.BroadcastUint32x8(8)
	sixteen := eight.Add(eight)
	for len(dst) >= 16 {
		to := (*[16]uint32)(dst)
		x0, x1 := c0, k1
		y0, y1 := c0.Add(eight), k1
		x0, x1 = rounds4(x0, x1, 13, 15, 26, 6)
		y0, y1 = rounds4(y0, y1, 13, 15, 26, 6)
		x0, x1, y0, y1 = x0.Add(k1), x1.Add(after[0]), y0.Add(k1), y1.Add(after[0])
		x0, x1 = rounds4(x0, x1, 17, 29, 16, 24)
		y0, y1 = rounds4(y0, y1, 17, 29, 16, 24)
		x0, x1, y0, y1 = x0.Add(k2), x1.Add(after[1]), y0.Add(k2), y1.Add(after[1])
		x0, x1 = rounds4(x0, x1, 13, 15, 26, 6)
		y0, y1 = rounds4(y0, y1, 13, 15, 26, 6)
		x0, x1, y0, y1 = x0.Add(k0), x1.Add(after[2]), y0.Add(k0), y1.Add(after[2])
		x0, x1 = rounds4(x0, x1, 17, 29, 16, 24)
		y0, y1 = rounds4(y0, y1, 17, 29, 16, 24)
		x0, x1, y0, y1 = x0.Add(k1), x1.Add(after[3]), y0.Add(k1), y1.Add(after[3])
		x0, _ = rounds4(x0, x1, 13, 15, 26, 6)
		y0, _ = rounds4(y0, y1, 13, 15, 26, 6)
		x0.Add(k2).Store(to[0:8])
		y0.Add(k2).Store(to[8:16])
		c0, dst = c0.Add(sixteen), dst[16:]
	}
	archsimd.ClearAVXUpperBits()
	return n
}
