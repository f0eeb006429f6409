package shuffle_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cage-qat/cage/internal/shuffle"
)

// The order for a seed never changes.
func Example() {
	list := []string{"a", "b", "c", "d", "e"}
	shuffle.Slice(rand.NewPCG(1, 2), list)
	fmt.Println(list)
	// Output: [a b e c d]
}

// TestSlice checks that all orders of three elements are about equally frequent.
func TestSlice(t *testing.T) {
	rng := rand.NewPCG(3, 4)
	const n = 60_000
	counts := map[[3]int]int{}
	for range n {
		list := []int{0, 1, 2}
		shuffle.Slice(rng, list)
		counts[[3]int(list)]++
		slices.Sort(list)
		if !slices.Equal(list, []int{0, 1, 2}) {
			t.Fatalf("%v is no permutation", list)
		}
	}
	for order, count := range counts {
		// Five standard deviations of a binomial distribution with n trials of probability 1/6.
		if count < n/6-457 || count > n/6+457 {
			t.Errorf("%v came %d times of %d", order, count, n)
		}
	}
	if len(counts) != 6 {
		t.Errorf("%d orders came, want 6", len(counts))
	}
}
