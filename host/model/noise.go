package model

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
)

// Numbers of independent streams of random numbers that share a seed.
const (
	rotationStream = 1 + iota
	optimumStream
	noiseStream
)

type normalSource interface{ NormFloat64() float64 }

// generator returns the generator of element index of a stream.
func generator(seed, stream, index uint64) *rand.Rand {
	var key [32]byte
	for i, v := range []uint64{seed, stream, index} {
		binary.LittleEndian.PutUint64(key[8*i:], v)
	}
	return rand.New(rand.NewChaCha8(key))
}

// normals draws n numbers from N(0, 1).
func normals(rng normalSource, n int) []float64 {
	out := make([]float64, n)
	for i := range out {
		out[i] = rng.NormFloat64()
	}
	return out
}

// NoiseSource draws the batches of a [Quadratic], as a data sampler draws those of a language model: batch i is the
// same whenever it is asked for, so that a resumed training sees the noise that it would have seen.
type NoiseSource struct {
	n    int
	std  float64
	seed uint64
}

// NoiseSource returns the source of the problem's noise for a seed.
func (m *Quadratic) NoiseSource(seed uint64) *NoiseSource {
	return &NoiseSource{n: m.settings.Rows * m.settings.Dimension, std: m.settings.Noise, seed: seed}
}

// BatchLen returns the number of elements of a batch.
func (s *NoiseSource) BatchLen() int { return s.n }

// At fills dst with the batch of that index, as the bits of float32 numbers drawn from N(0, noise²).
func (s *NoiseSource) At(index int64, dst []int32) error {
	if index < 0 || len(dst) != s.n {
		return fmt.Errorf("noise: batch %d into room for %d numbers, a batch has %d", index, len(dst), s.n)
	}
	rng := generator(s.seed, noiseStream, uint64(index))
	for i := range dst {
		dst[i] = int32(math.Float32bits(float32(s.std * rng.NormFloat64())))
	}
	return nil
}
