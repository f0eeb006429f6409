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
type counter struct {
	context  int
	begun    *[]int // lengths of the longest prompts
	broken   error
	infinite bool
	nan      bool
}

func (c counter) Context() int { return c.context }

func (c counter) Begin(prompts [][]int32, length int) (Sequences, []float32, error) {
	var last []int32
	longest := 0
	for _, p := range prompts {
		last, longest = append(last, p[len(p)-1]), max(longest, len(p))
	}
	if longest > length || length > c.context {
		return nil, nil, errors.New("more tokens than were announced, or than the context has")
	}
	if c.begun != nil {
		*c.begun = append(*c.begun, longest)
	}
	s := &counting{c, length - longest}
	logits, err := s.logits(last)
	return s, logits, err
}

type counting struct {
	counter
	room int
}

func (s *counting) Next(tokens []int32) ([]float32, error) {
	if s.room--; s.room < 0 {
		return nil, errors.New("no room is left")
	}
	return s.logits(tokens)
}

func (s *counting) logits(tokens []int32) ([]float32, error) {
	out := make([]float32, len(tokens)*8)
	for i, t := range tokens {
		out[i*8+int(t+1)%8] = 5
		out[i*8+int(t+2)%8] = 4
	}
	if s.nan {
		out[3] = float32(math.NaN())
	}
	if s.infinite {
		out[1] = float32(math.Inf(1))
	}
	return out, s.broken
}

func (s *counting) Close() {}

func one(t *testing.T, m Model, prompt []int32, o Options) []int32 {
	t.Helper()
	got, err := Continue(context.Background(), m, [][]int32{prompt}, o, nil)
	if err != nil {
		t.Fatal(err)
	}
	return got[0]
}

// TestGreedyFollowsTheModel checks greedy decoding, also beyond the context, of which half is then
// read again.
func TestGreedyFollowsTheModel(t *testing.T) {
	var begun []int
	got := one(t, counter{context: 4, begun: &begun}, []int32{5, 6}, Options{Tokens: 6})
	if want := []int32{7, 0, 1, 2, 3, 4}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if want := []int{2, 2}; !slices.Equal(begun, want) {
		t.Errorf("prompts of %v tokens were read, want %v", begun, want)
	}
}

// TestBatch checks that each sequence of a batch ends independently and that emit gets its tokens.
func TestBatch(t *testing.T) {
	told := map[int][]int32{}
	got, err := Continue(context.Background(), counter{context: 16}, [][]int32{{1, 2}, {6}, {3}},
		Options{Tokens: 5, Stop: []int32{5}},
		func(i int, token int32) error {
			told[i] = append(told[i], token)
			if i == 1 && token == 1 {
				return ErrStop
			}
			return nil
		})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range [][]int32{{3, 4}, {7, 0, 1}, {4}} {
		if !slices.Equal(got[i], want) || !slices.Equal(told[i], want) {
			t.Errorf("sequence %d: got %v, was told %v, want %v", i, got[i], told[i], want)
		}
	}
}

func TestSeedsAndTopK(t *testing.T) {
	sample := func(o Options) []int32 {
		o.Tokens, o.Temperature = 200, 1
		return one(t, counter{context: 4}, []int32{0}, o)
	}
	if !slices.Equal(sample(Options{Seed: 1}), sample(Options{Seed: 1})) {
		t.Error("equal seeds give different tokens")
	}
	if slices.Equal(sample(Options{Seed: 1}), sample(Options{Seed: 2})) {
		t.Error("different seeds give the same 200 tokens")
	}
	// The two likeliest tokens have (e⁵ + e⁴)/(e⁵ + e⁴ + 6) = 97 % of the probability.
	for name, o := range map[string]Options{"top-2": {Seed: 3, TopK: 2},
		"top-p": {Seed: 3, TopP: 0.9}} {
		last, counts := int32(0), map[int32]int{}
		for _, id := range sample(o) {
			counts[(id-last+8)%8]++
			last = id
		}
		if counts[1]+counts[2] != 200 || counts[2] == 0 {
			t.Errorf("%s took the steps %v, want only 1 and 2", name, counts)
		}
		// The odds of logits 5 and 4 are e to 1.
		if share := float64(counts[1]) / 200; math.Abs(share-math.E/(1+math.E)) > 0.1 {
			t.Errorf("%s: the likelier token was drawn with frequency %.2f, want about 0.73", name, share)
		}
	}
	greedy := one(t, counter{context: 4}, []int32{0}, Options{Tokens: 200})
	for name, o := range map[string]Options{"top-1": {Seed: 1, TopK: 1},
		"a small top-p": {Seed: 1, TopP: 0.1},
		// The likeliest token has 71 % of the probability, and 73 % of that of the two likeliest.
		"a top-p of the top-2": {Seed: 1, TopK: 2, TopP: 0.72}} {
		if !slices.Equal(sample(o), greedy) {
			t.Errorf("%s is not the likeliest token", name)
		}
	}
}

func TestVocabHidesPadding(t *testing.T) {
	if got := one(t, counter{context: 4}, []int32{2}, Options{Tokens: 1, Vocab: 3}); got[0] > 2 {
		t.Errorf("got %v, want an id below 3", got)
	}
}

func TestBadInput(t *testing.T) {
	tests := []struct {
		name   string
		m      Model
		prompt []int32
		o      Options
		want   string
	}{
		{"empty prompt", counter{context: 1}, nil, Options{Tokens: 1}, "prompt is empty"},
		{"temperature", counter{context: 1}, []int32{1}, Options{Tokens: 1, Temperature: -1},
			"none may be negative"},
		{"top-p", counter{context: 1}, []int32{1}, Options{Tokens: 1, TopP: 1.5},
			"top-p 1.5, want a number from 0 to 1"},
		{"not a number", counter{context: 1, nan: true}, []int32{1}, Options{Tokens: 1}, "contain NaN"},
		{"infinite", counter{context: 1, infinite: true}, []int32{1},
			Options{Tokens: 1, Temperature: 0.8}, "infinite"},
		{"infinite, and the likeliest", counter{context: 1, infinite: true}, []int32{1},
			Options{Tokens: 1}, "infinite"},
		{"device", counter{context: 1, broken: errors.New("device lost")}, []int32{1}, Options{Tokens: 1},
			"device lost"},
	}
	for _, tt := range tests {
		_, err := Continue(context.Background(), tt.m, [][]int32{tt.prompt}, tt.o, nil)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want an error with %q", tt.name, err, tt.want)
		}
	}
}
