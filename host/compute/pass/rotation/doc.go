// Package rotation finds the rotation that a program's output ends in, and removes it.
//
// A quantizer that rotates quantizes z = Hx and returns x̂ = Hẑ. In a product of two
// tensors that are rotated alike along the contracted axis, the rotations cancel, because
// H is orthogonal and symmetric:
//
//	x̂·ŵᵀ = ẑx·H·Hᵀ·ẑwᵀ = ẑx·ẑwᵀ
//
// so that both may be left rotated (the half variant of QuEST, Panferov et al. 2025).
// Authors need not say whether their programs end in a rotation: this package finds out.
//
// It only transforms programs. The host decides in which products to use this.
package rotation
