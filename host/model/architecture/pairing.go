package architecture

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
