package model_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/cage-qat/cage/host/model/architecture"
)

// TestReorder checks that pairs of features stay together in each head, and that reordering back
// restores the list.
func TestReorder(t *testing.T) {
	for _, size := range []int{2, 4, 6, 64} {
		features := make([]int, 3*size)
		for i := range features {
			features[i] = i
		}
		halves := architecture.Reorder(features, size, architecture.Interleaved, architecture.HalfSplit)
		for head := 0; head < len(features); head += size {
			for i := range size / 2 {
				if first, second := halves[head+i], halves[head+size/2+i]; first != head+2*i ||
					second != first+1 {
					t.Fatalf("size %d: point %d of the halves is features %d and %d of the pairs", size, head/2+i,
						first, second)
				}
			}
		}
		if back := architecture.Reorder(halves, size, architecture.HalfSplit,
			architecture.Interleaved); !slices.Equal(back, features) {
			t.Errorf("size %d: there and back gives %v", size, back)
		}
		if same := architecture.Reorder(features, size, architecture.HalfSplit,
			architecture.HalfSplit); !slices.Equal(same, features) {
			t.Errorf("size %d: no change gives %v", size, same)
		}
	}
}

func ExampleReorder() {
	fmt.Println(architecture.Reorder([]int{0, 1, 2, 3}, 4, architecture.Interleaved,
		architecture.HalfSplit))
	// Output: [0 2 1 3]
}
