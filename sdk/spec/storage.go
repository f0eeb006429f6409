package spec

import "math"

// Storage is the type in which a state tensor is stored between programs, in memory and in
// checkpoints. Programs take and return floats.
type Storage string

// The storage types.
const (
	StoreFloat32  Storage = ""
	StoreInt8     Storage = "int8"     // integers from -128 to 127
	StoreUint8    Storage = "uint8"    // integers from 0 to 255
	StoreBFloat16 Storage = "bfloat16" // rounded to the nearest bfloat16, ties to even
)

// Bytes returns the size of one element.
func (s Storage) Bytes() int {
	switch s {
	case StoreInt8, StoreUint8:
		return 1
	case StoreBFloat16:
		return 2
	}
	return 4
}

// Round returns v after it has been stored and read back. An integer type clamps and rounds v to
// its nearest integer, but callers must store integers within its range only.
func (s Storage) Round(v float64) float64 {
	switch s {
	case StoreInt8:
		return math.RoundToEven(min(max(v, math.MinInt8), math.MaxInt8))
	case StoreUint8:
		return math.RoundToEven(min(max(v, 0), math.MaxUint8))
	case StoreBFloat16:
		if v != v { // NaN stays NaN
			return v
		}
		bits := math.Float32bits(float32(v)) // from float32, as in hosts
		bits += 0x7fff + bits>>16&1
		return float64(math.Float32frombits(bits &^ 0xffff))
	}
	return float64(float32(v))
}
