package generate_test

import (
	"context"
	"fmt"

	"github.com/cage-qat/cage/host/model/generate"
)

// even is a model of six tokens that always prefers (t+2) mod 6 after token t.
type even struct{}

func (even) Context() int { return 8 }

func (e even) Begin(prompts [][]int32, _ int) (generate.Sequences, []float32, error) {
	var last []int32
	for _, p := range prompts {
		last = append(last, p[len(p)-1])
	}
	logits, err := e.Next(last)
	return e, logits, err
}

func (even) Next(tokens []int32) ([]float32, error) {
	logits := make([]float32, len(tokens)*6)
	for i, t := range tokens {
		logits[i*6+int(t+2)%6] = 1
	}
	return logits, nil
}

func (even) Close() {}

func ExampleContinue() {
	next, err := generate.Continue(context.Background(), even{}, [][]int32{{0}},
		generate.Options{Tokens: 4}, nil)
	fmt.Println(next, err)
	// Output: [[2 4 0 2]] <nil>
}
