//go:build amd64 && goexperiment.simd

package loops

import "simd/archsimd"

// lookupHeld is [Lookup] for a table of at most maxHeld numbers, 8 indices at a time. It returns
// the number of elements done.
func lookupHeld(dst []float32, index []int32, table []float32) int {
	if !hasAVX2 {
		return 0
	}
	var held [maxHeld]float32
	copy(held[:], table)
	low, high := archsimd.LoadFloat32x8(held[:8]), archsimd.LoadFloat32x8(held[8:])
	first, last := archsimd.Int32x8{}, archsimd.BroadcastInt32x8(int32(len(table)-1))
	lastLow := archsimd.BroadcastInt32x8(7)
	done := len(index) &^ 7
	for len(index) >= 8 && len(dst) >= 8 {
		i := archsimd.LoadInt32x8(index[:8]).Max(first).Min(last)
		at := i.AsUint32x8()
		low.Permute(at).IfElse(lastLow.GreaterEqual(i), high.Permute(at)).Store(dst[:8])
		index, dst = index[8:], dst[8:]
	}
	archsimd.ClearAVXUpperBits()
	return done
}
