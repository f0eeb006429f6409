package pyrandom_test

import (
	"fmt"

	"github.com/cage-qat/cage/internal/pyrandom"
)

// The same as in Python: r = random.Random(42); r.randint(1, 6); r.sample(range(100), 3).
func Example() {
	r := pyrandom.New(42)
	fmt.Println(r.RandInt(1, 6), r.Sample(100, 3))
	// Output: 6 [14 3 94]
}
