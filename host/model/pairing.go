package model

// Pairing says which features of a head are the coordinates of one point, which rotary positions turn. Weights trained
// with one pairing are those of the other after a permutation of rows.
type Pairing string

// The pairings.
const (
	Interleaved Pairing = "interleaved" // features 2i and 2i+1
	HalfSplit   Pairing = "half"        // features i and size/2 + i
)

// Feature is the feature of a head, in the pairing from, that is feature i in the pairing to. A head has size features.
func Feature(i, size int, from, to Pairing) int {
	switch {
	case from == to:
		return i
	case to == HalfSplit:
		return i%(size/2)*2 + i/(size/2)
	}
	return i%2*(size/2) + i/2
}

// Reorder brings a list of features, head by head, from one pairing to another.
func Reorder(features []int, size int, from, to Pairing) []int {
	out := make([]int, len(features))
	for i := range features {
		out[i] = features[i/size*size+Feature(i%size, size, from, to)]
	}
	return out
}
