// Package generate continues token sequences with a language model: softmax
// sampling with temperature and top-k, seeded. It knows a model only as a function
// from tokens to logits; text and tokenizers belong to the caller.
package generate

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

// Options control sampling.
type Options struct {
	// Tokens is the number of tokens to generate.
	Tokens int
	// Temperature divides the logits; 0 takes the likeliest token.
	Temperature float64
	// TopK restricts the choice to the K likeliest tokens; 0 means all.
	TopK int
	// Vocab restricts ids to those below it, where a model has more rows than its
	// tokenizer has tokens; 0 means all.
	Vocab int
	// Seed fixes the draws.
	Seed uint64
}

// Model returns the logits of the token that follows each position of a full
// context, flat [context, vocabulary].
type Model func(tokens []int32) ([]float32, error)

// Continue extends prompt, which must not be empty, and returns the new tokens.
// The model sees the last tokens that fit into its context.
func Continue(ctx context.Context, m Model, context int, prompt []int32, o Options) ([]int32, error) {
	if len(prompt) == 0 {
		return nil, fmt.Errorf("generate: the prompt is empty: give at least one token")
	}
	if o.Temperature < 0 || math.IsNaN(o.Temperature) || o.Tokens < 0 || o.TopK < 0 {
		return nil, fmt.Errorf("generate: tokens %d, temperature %v, top-k %d: none may be negative", o.Tokens, o.Temperature, o.TopK)
	}
	rng := rand.New(rand.NewPCG(o.Seed, 0))
	all := slices.Clone(prompt)
	window := make([]int32, context)
	for range o.Tokens {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		seen := all[max(0, len(all)-context):]
		// What follows the last token is padding, which causal attention keeps it from seeing.
		clear(window)
		copy(window, seen)
		logits, err := m(window)
		if err != nil {
			return nil, err
		}
		vocab := len(logits) / context
		row := logits[(len(seen)-1)*vocab : len(seen)*vocab]
		if o.Vocab > 0 {
			row = row[:min(vocab, o.Vocab)]
		}
		next, err := draw(rng, row, o)
		if err != nil {
			return nil, err
		}
		all = append(all, next)
	}
	return all[len(prompt):], nil
}

// draw picks a token from one row of logits.
func draw(rng *rand.Rand, logits []float32, o Options) (int32, error) {
	order := make([]int32, len(logits))
	for i, l := range logits {
		if math.IsNaN(float64(l)) {
			return 0, fmt.Errorf("generate: the model's output is not a number")
		}
		order[i] = int32(i)
	}
	slices.SortStableFunc(order, func(a, b int32) int {
		switch {
		case logits[a] > logits[b]:
			return -1
		case logits[a] < logits[b]:
			return 1
		}
		return 0
	})
	if o.Temperature == 0 {
		return order[0], nil
	}
	if o.TopK > 0 {
		order = order[:min(o.TopK, len(order))]
	}
	best := float64(logits[order[0]])
	weights := make([]float64, len(order))
	total := 0.0
	for i, id := range order {
		weights[i] = math.Exp((float64(logits[id]) - best) / o.Temperature)
		total += weights[i]
	}
	left := rng.Float64() * total
	for i, w := range weights {
		if left -= w; left < 0 {
			return order[i], nil
		}
	}
	return order[len(order)-1], nil
}
