package generate

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestLargest checks that the largest candidates are the first ones of all that are sorted.
func TestLargest(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		list := make([]candidate, 1+random.IntN(50))
		for i := range list {
			list[i] = candidate{int32(i), float64(random.IntN(10))} // many are equal
		}
		k := 1 + random.IntN(len(list))
		got := largest(list, k)
		sortByWeight(list)
		if !slices.Equal(got, list[:k]) {
			t.Fatalf("the largest %d are %v, want %v", k, got, list[:k])
		}
	}
}

// TestLargestOfMany takes half of the ids of a large vocabulary in the worst order.
func TestLargestOfMany(t *testing.T) {
	const n = 1 << 18
	list := make([]candidate, n)
	for i := range list {
		list[i] = candidate{int32(i), float64(i)}
	}
	got := largest(list, n/2)
	slices.Reverse(list)
	if !slices.Equal(got, list[:n/2]) {
		t.Error("not the larger half in descending order")
	}
}

// BenchmarkTopK draws one of the 40 likeliest tokens of a large vocabulary.
func BenchmarkTopK(b *testing.B) {
	random := rand.New(rand.NewPCG(1, 2))
	logits := make([]float32, 262144)
	for i := range logits {
		logits[i] = float32(random.NormFloat64())
	}
	for b.Loop() {
		if _, err := (Options{Temperature: 1, TopK: 40}).draw(random, logits); err != nil {
			b.Fatal(err)
		}
	}
}
