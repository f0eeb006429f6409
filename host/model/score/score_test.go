package score_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/cage-qat/cage/host/model/score"
)

// fake is a model of ten tokens whose results depend on a hash of a token and all tokens before it.
func fake(before []int32, target int32) (logProb float32, likeliest bool) {
	sum := int32(7)
	for _, t := range before {
		sum = (sum*31 + t + 1) % 1009
	}
	return -float32((sum+target)%13) / 4, (sum+target)%3 == 0
}

// run returns the model's scores of a batch.
func run(b *score.Batch) []score.Score {
	logProbs, likeliest := make([]float32, len(b.Targets)), make([]bool, len(b.Targets))
	for i, place := range b.Indices {
		logProbs[i], likeliest[i] = fake(seen(b, int(place)), b.Targets[i])
	}
	return b.Scores(logProbs, likeliest)
}

// logProbs returns the model's log-probabilities of all targets.
func logProbs(b *score.Batch) []float32 {
	list := make([]float32, len(b.Targets))
	for i, place := range b.Indices {
		list[i], _ = fake(seen(b, int(place)), b.Targets[i])
	}
	return list
}

func sum(list []float32) (s float64) {
	for _, v := range list {
		s += float64(v)
	}
	return s
}

// seen returns the tokens that the token at a place attends to, in the order of their positions.
func seen(b *score.Batch, place int) (list []int32) {
	for k := place / b.Length * b.Length; k <= place; k++ {
		if b.Parts == nil || b.Parts[k] == 0 || b.Parts[k] == b.Parts[place] {
			if b.Parts != nil && int(b.Positions[k]) != len(list) {
				panic("a position is not that in the sequence")
			}
			list = append(list, b.Tokens[k])
		}
	}
	return list
}

// TestBatches checks that every request is scored once, with the score that it has alone.
func TestBatches(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	ids := func(n int) []int32 {
		list := make([]int32, n)
		for i := range list {
			list[i] = int32(rng.IntN(10))
		}
		return list
	}
	for round := range 100 {
		share := round%2 == 0
		context := 1 + rng.IntN(200)
		longest := min(60, context)
		var requests []score.Request
		for range rng.IntN(100) {
			requests = append(requests,
				score.Request{Context: ids(1 + rng.IntN(150)), Continuation: ids(1 + rng.IntN(longest))})
			for rng.IntN(2) == 0 { // more requests with the same context
				requests = append(requests, score.Request{Context: requests[len(requests)-1].Context,
					Continuation: ids(1 + rng.IntN(longest))})
			}
		}
		rng.Shuffle(len(requests)/2,
			func(i, j int) { requests[i], requests[j] = requests[j], requests[i] })
		tokens := score.Tokens(context, 100)
		batches, err := score.Batches(requests, tokens, context, share)
		if err != nil {
			t.Fatal(err)
		}
		again, _ := score.Batches(requests, tokens, context, share)
		if !reflect.DeepEqual(batches, again) {
			t.Fatal("equal requests have other batches")
		}
		seen := make([]bool, len(requests))
		for _, b := range batches {
			if b.Rows*b.Length != tokens || len(b.Tokens) != tokens || len(b.Lengths) != b.Rows {
				t.Fatalf("%d rows of %d, %d tokens, want %d", b.Rows, b.Length, len(b.Tokens), tokens)
			}
			split := b.Split(logProbs(&b))
			for i, s := range run(&b) {
				r := b.Requests[i]
				if sum := sum(split[i]); len(split) != len(b.Requests) || sum != s.LogProb {
					t.Fatalf("request %d: the parts add up to %v, want %v", r, sum, s.LogProb)
				}
				if seen[r] || s != alone(requests[r], context) {
					t.Fatalf("request %d: %+v, want %+v, seen before: %v", r, s, alone(requests[r], context),
						seen[r])
				}
				seen[r] = true
			}
		}
		if slices.Contains(seen, false) {
			t.Fatal("a request is in no batch")
		}
	}
}

// alone scores a request by the definition: on its last context + 1 tokens, the last of which is
// only a target.
func alone(r score.Request, context int) score.Score {
	all := slices.Concat(r.Context, r.Continuation)
	if len(all) > context+1 {
		all = all[len(all)-context-1:]
	}
	s := score.Score{Greedy: true}
	for k := max(1, len(all)-len(r.Continuation)); k < len(all); k++ {
		logProb, likeliest := fake(all[:k], all[k])
		s.LogProb += float64(logProb)
		s.Greedy = s.Greedy && likeliest
	}
	return s
}

func TestBatchesRefuse(t *testing.T) {
	for _, r := range []score.Request{{Context: []int32{1}}, {Continuation: []int32{1}},
		{Context: []int32{1}, Continuation: make([]int32, 9)}} {
		if _, err := score.Batches([]score.Request{r}, 192, 8, true); err == nil {
			t.Errorf("%+v is taken", r)
		}
	}
	long := score.Request{Context: make([]int32, 200), Continuation: []int32{1}}
	if _, err := score.Batches([]score.Request{long}, 192, 200, true); err == nil {
		t.Error("a sequence that is longer than a batch is taken")
	}
}

func ExampleBatches() {
	requests := []score.Request{{Context: []int32{1, 2}, Continuation: []int32{3}},
		{Context: []int32{1, 2, 3, 4}, Continuation: []int32{5, 6}}}
	batches, err := score.Batches(requests, score.Tokens(8, 0), 8, false)
	if err != nil {
		fmt.Println(err)
		return
	}
	b := batches[0]
	fmt.Println(len(batches), b.Requests, b.Rows, b.Length)
	fmt.Println(b.Indices[:3], b.Targets[:3])
	// Output:
	// 1 [1 0] 32 6
	// [3 4 7] [5 6 3]
}

// Two continuations of one context share a row, which holds the context once.
func ExampleBatches_share() {
	requests := []score.Request{{Context: []int32{1, 2, 3}, Continuation: []int32{4, 5}},
		{Context: []int32{1, 2, 3}, Continuation: []int32{6, 7, 8}}}
	batches, err := score.Batches(requests, score.Tokens(8, 0), 8, true)
	if err != nil {
		fmt.Println(err)
		return
	}
	b := batches[0]
	fmt.Println(b.Requests, b.Tokens[:6], b.Parts[:6], b.Positions[:6])
	fmt.Println(b.Indices[:5], b.Targets[:5])
	// Output:
	// [0 1] [1 2 3 4 6 7] [0 0 0 1 2 2] [0 1 2 3 3 4]
	// [2 3 2 4 5] [4 5 6 7 8]
}
