package architecture

import "math"

// Pairing says which two features of a head are the coordinates of one point, which the rotary position embedding
// rotates. Weights for one pairing become those for the other by a permutation of rows.
type Pairing string

// The pairings.
const (
	Interleaved Pairing = "interleaved" // features 2i and 2i+1
	HalfSplit   Pairing = "half"        // features i and size/2 + i
)

// Feature returns which feature of a head in the pairing from is feature i in the pairing to. A head has size features.
func Feature(i, size int, from, to Pairing) int {
	switch {
	case from == to:
		return i
	case to == HalfSplit:
		return i%(size/2)*2 + i/(size/2)
	}
	return i%2*(size/2) + i/2
}

// Reorder converts a list of features from one pairing to another, head by head.
func Reorder(features []int, size int, from, to Pairing) []int {
	out := make([]int, len(features))
	for i := range features {
		out[i] = features[i/size*size+Feature(i%size, size, from, to)]
	}
	return out
}

// Turns returns the cosines and sines of the angles of the rotary position embedding, for positions from 0 on: each has
// shape [positions, size/2], where size is that of a head.
func (s Settings) Turns(positions int) (cos, sin []float32) {
	return s.ByPosition(positions, math.Cos), s.ByPosition(positions, math.Sin)
}

// ByPosition is a table of a function of the angles at positions from 0 on, [positions, size/2].
func (s Settings) ByPosition(positions int, f func(float64) float64) []float32 {
	frequencies := s.RopeFrequencies()
	values := make([]float32, 0, positions*len(frequencies))
	for position := range positions {
		for _, frequency := range frequencies {
			values = append(values, float32(f(float64(position)*frequency)))
		}
	}
	return values
}

// RopeFrequencies returns the rotation per position of each pair, θ^(−2i/size) for i = 0 … size/2−1, lower where
// RopeFactor stretches the wavelength.
func (s Settings) RopeFrequencies() []float64 {
	frequencies := make([]float64, s.HeadSize/2)
	for i := range frequencies {
		f := math.Pow(s.RopeTheta, -2*float64(i)/float64(s.HeadSize))
		if s.RopeFactor > 1 {
			periods := float64(s.RopeOriginal) * f / (2 * math.Pi) // wavelengths in the original context
			share := min(1, max(0, (periods-s.RopeLow)/(s.RopeHigh-s.RopeLow)))
			f = (1-share)*f/s.RopeFactor + share*f
		}
		frequencies[i] = f
	}
	return frequencies
}
