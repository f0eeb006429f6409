package generate_test

import (
	"context"
	"fmt"

	"github.com/cage-qat/cage/host/generate"
)

// A model that always prefers the next even number, of six tokens.
func ExampleContinue() {
	model := func(tokens []int32) ([]float32, error) {
		logits := make([]float32, len(tokens)*6)
		for i, t := range tokens {
			logits[i*6+int(t+2)%6] = 1
		}
		return logits, nil
	}
	next, err := generate.Continue(context.Background(), model, 8, []int32{0}, generate.Options{Tokens: 4})
	fmt.Println(next, err)
	// Output: [2 4 0 2] <nil>
}
