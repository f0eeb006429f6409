package generate

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
)

// counter is a model over 8 tokens whose likeliest next token is the previous plus one.
func counter(tokens []int32) ([]float32, error) {
	logits := make([]float32, len(tokens)*8)
	for i, t := range tokens {
		logits[i*8+int(t+1)%8] = 5
		logits[i*8+int(t+2)%8] = 4
	}
	return logits, nil
}

func TestGreedyFollowsTheModel(t *testing.T) {
	got, err := Continue(context.Background(), counter, 4, []int32{6}, Options{Tokens: 6})
	if err != nil {
		t.Fatal(err)
	}
	if want := []int32{7, 0, 1, 2, 3, 4}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v: also past the length of the context", got, want)
	}
}

func TestSeedsAndTopK(t *testing.T) {
	sample := func(seed uint64, k int) []int32 {
		got, err := Continue(context.Background(), counter, 4, []int32{0}, Options{Tokens: 200, Temperature: 1, TopK: k, Seed: seed})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	if !slices.Equal(sample(1, 0), sample(1, 0)) {
		t.Error("equal seeds give different tokens")
	}
	if slices.Equal(sample(1, 0), sample(2, 0)) {
		t.Error("different seeds give the same 200 tokens")
	}
	last := int32(0)
	counts := map[int32]int{}
	for _, id := range sample(3, 2) {
		counts[(id-last+8)%8]++
		last = id
	}
	if counts[1]+counts[2] != 200 || counts[2] == 0 {
		t.Errorf("top-2 took the steps %v, want only 1 and 2", counts)
	}
	// The odds of logits 5 and 4 are e to 1.
	if share := float64(counts[1]) / 200; math.Abs(share-math.E/(1+math.E)) > 0.1 {
		t.Errorf("the likelier token was drawn with frequency %.2f, want about 0.73", share)
	}
}

func TestVocabHidesPadding(t *testing.T) {
	got, err := Continue(context.Background(), counter, 4, []int32{2}, Options{Tokens: 1, Vocab: 3})
	if err != nil || got[0] > 2 {
		t.Errorf("got %v, %v, want an id below 3", got, err)
	}
}

func TestBadInput(t *testing.T) {
	nan := func(tokens []int32) ([]float32, error) { return []float32{float32(math.NaN()), 1}, nil }
	fails := func([]int32) ([]float32, error) { return nil, errors.New("device lost") }
	tests := []struct {
		name   string
		m      Model
		prompt []int32
		o      Options
		want   string
	}{
		{"empty prompt", counter, nil, Options{Tokens: 1}, "prompt is empty"},
		{"temperature", counter, []int32{1}, Options{Tokens: 1, Temperature: -1}, "none may be negative"},
		{"not a number", nan, []int32{1}, Options{Tokens: 1}, "not a number"},
		{"device", fails, []int32{1}, Options{Tokens: 1}, "device lost"},
	}
	for _, tt := range tests {
		_, err := Continue(context.Background(), tt.m, 1, tt.prompt, tt.o)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want an error with %q", tt.name, err, tt.want)
		}
	}
}
