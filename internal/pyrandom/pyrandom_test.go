package pyrandom_test

import (
	"math"
	"testing"

	"github.com/cage-qat/cage/internal/pyrandom"
)

// TestWide checks numbers of more than 32 bits. The values are those of CPython 3.11 with
// random.Random(7).
func TestWide(t *testing.T) {
	r := pyrandom.New(7)
	for _, want := range []int{868231286071, 105874957392, 208460025899, 470330855157} {
		if got := r.Below(1<<40 + 3); got != want {
			t.Fatalf("drew %d below 2⁴⁰ + 3, want %d", got, want)
		}
	}
	for _, c := range []struct {
		bits int
		want string
	}{{0, "0"}, {1, "0"}, {33, "369140570"}, {64, "1288605153985647771"},
		{65, "20120103847691294500"}} {
		if got := r.GetRandBits(c.bits).String(); got != c.want {
			t.Fatalf("drew %s with %d bits, want %s", got, c.bits, c.want)
		}
	}
}

// TestSeeds checks that a seed and its negative give the same numbers, and that the smallest seed
// works. The values are those of CPython 3.11.
func TestSeeds(t *testing.T) {
	for seed, want := range map[int64]float64{5: 0x1.3eecf89059360p-1, -5: 0x1.3eecf89059360p-1,
		math.MinInt64: 0x1.1b5fa2193586fp-1} {
		if got := pyrandom.New(seed).Random(); got != want {
			t.Errorf("the first number of seed %d is %x, want %x", seed, got, want)
		}
	}
}

// TestSampleBoundary checks the sums of samples from populations just below and above the size at
// which CPython changes its algorithm. The values are those of CPython 3.11 with random.Random(3).
func TestSampleBoundary(t *testing.T) {
	r := pyrandom.New(3)
	for _, c := range []struct{ n, k, want int }{{85, 6, 314}, {86, 6, 300}, {85, 21, 944},
		{277, 22, 3664}, {278, 22, 2806}} {
		sum := 0
		for _, drawn := range r.Sample(c.n, c.k) {
			sum += drawn
		}
		if sum != c.want {
			t.Errorf("a sample of %d out of %d sums to %d, want %d", c.k, c.n, sum, c.want)
		}
	}
}

// TestPanics checks that invalid or unsupported arguments cause a panic, as in math/rand.
func TestPanics(t *testing.T) {
	r, s := pyrandom.New(1), pyrandom.NewRandomState(1)
	for name, draw := range map[string]func(){
		"Below":           func() { r.Below(0) },
		"RandInt":         func() { r.RandInt(3, 1) },
		"Choice":          func() { pyrandom.Choice(r, []int{}) },
		"Sample":          func() { r.Sample(2, 3) },
		"RandomState":     func() { s.RandInt(5, 5) },
		"RandomStateWide": func() { s.RandInt(0, 1<<32) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("it did not panic")
				}
			}()
			draw()
		})
	}
	if got := s.RandInt(8, 9); got != 8 {
		t.Errorf("randint(8, 9) is %d, want 8", got)
	}
}
