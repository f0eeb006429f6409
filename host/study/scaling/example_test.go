package scaling_test

import (
	"context"
	"fmt"

	"github.com/cage-qat/cage/host/study/scaling"
)

// With the shared parameters known, a loss tells what 4 bits are worth; beside the loss of
// full precision it does so whatever the law gets wrong about both.
func Example() {
	law := scaling.QuEST
	points := []scaling.Point{
		{Group: scaling.Group{Method: "BF16", Bits: 16}, N: 1e8, D: 1e10, Loss: 2.89},
		{Group: scaling.Group{Method: "QuEST", Bits: 4}, N: 1e8, D: 1e10, Loss: 2.95},
	}
	fit, err := scaling.Run(context.Background(), points, scaling.Options{
		Fixed: map[string]float64{"A": law.A, "alpha": law.Alpha, "B": law.B, "beta": law.Beta, "E": law.E},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, e := range fit.Effs {
		fmt.Printf("%s: eff %.3f, eff·16/P %.2f\n", e.Group, e.Value, e.Normalized)
	}
	fmt.Printf("beside BF16: eff %.3f\n", law.Invert(1e8, 2.95, 2.89))
	// Output:
	// BF16: eff 1.000, eff·16/P 1.00
	// QuEST, 4 bits: eff 0.721, eff·16/P 2.88
	// beside BF16: eff 0.691
}
