package dataset

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
)

// marked returns a token file of n tokens. Token i has the id mark<<12 | i.
func marked(t *testing.T, mark int32, n int) *File {
	t.Helper()
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = mark<<12 | int32(i)
	}
	return writeTokens(t, wideInfo, ids)
}

func newMixture(t *testing.T, sources []Weighted, config WindowsConfig) *Mixture {
	t.Helper()
	m, err := NewMixture(sources, config)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestMixture checks that weights are shares of the windows, that each source has every window once
// per epoch, in new orders, and that a batch depends only on its number.
func TestMixture(t *testing.T) {
	const context, batch, batches = 4, 8, 4000
	sources := []Weighted{{marked(t, 1, 4000), 0.7}, {marked(t, 2, 400), 0.2},
		{marked(t, 3, 1000), 0.1}}
	config := WindowsConfig{Context: context, Batch: batch, Seed: 9}
	m := newMixture(t, sources, config)
	rows := make([][][]int32, len(sources)) // the windows of each source, in order
	dst := make([]int32, m.BatchLen())
	for i := range int64(batches) {
		if err := m.At(i, dst); err != nil {
			t.Fatal(err)
		}
		for row := range slices.Chunk(slices.Clone(dst), context+1) {
			s := row[0]>>12 - 1
			rows[s] = append(rows[s], row)
			if row[context] != row[0]+context {
				t.Fatalf("no window: %v", row)
			}
		}
		if n := (i + 1) * batch; n%1000 == 0 {
			for s, source := range sources {
				if off := math.Abs(float64(len(rows[s])) - source.Weight*float64(n)); off > 64*source.Weight+2 {
					t.Errorf("after %d windows, source %d has had %d", n, s, len(rows[s]))
				}
			}
		}
	}
	epochs := m.Epochs(batches)
	for s := range sources {
		windows := int(m.samplers[s].windows)
		if got := float64(len(rows[s])) / float64(windows); got != epochs[s] {
			t.Errorf("source %d: %v epochs, counted %v", s, epochs[s], got)
		}
		var first [][]int32
		for epoch := range slices.Chunk(rows[s], windows) {
			begins := make(map[int32]bool)
			for _, row := range epoch {
				begins[row[0]] = true
			}
			if len(begins) != len(epoch) {
				t.Fatalf("source %d: a window twice in an epoch", s)
			}
			if first != nil && slices.EqualFunc(first, epoch,
				func(a, b []int32) bool { return a[0] == b[0] }) {
				t.Errorf("source %d: two epochs have the same order", s)
			}
			first = epoch
		}
	}
	for _, i := range []int64{batches - 1, 5, 1 << 40, 0, 777} { // in any order, in a new mixture
		if err := m.At(i, dst); err != nil {
			t.Fatal(err)
		}
		again := newMixture(t, sources, config)
		other := make([]int32, m.BatchLen())
		if err := again.At(i, other); err != nil || !slices.Equal(dst, other) {
			t.Errorf("batch %d is different in a new mixture, %v", i, err)
		}
	}
}

// TestMixtureOfOne checks that a mixture of one source has the same batches as Windows.
func TestMixtureOfOne(t *testing.T) {
	f := marked(t, 1, 1000)
	config := WindowsConfig{Context: 4, Batch: 3, Seed: 5}
	m := newMixture(t, []Weighted{{f, 2}}, config)
	s := newWindows(t, f, config)
	a, b := make([]int32, m.BatchLen()), make([]int32, m.BatchLen())
	for i := range s.batches {
		if err := errors.Join(m.At(i, a), s.At(i, b)); err != nil || !slices.Equal(a, b) {
			t.Fatalf("batch %d: %v, %v, %v", i, a, b, err)
		}
	}
}

func TestMixtureRefuses(t *testing.T) {
	f, short := marked(t, 1, 1000), marked(t, 2, 5)
	good := WindowsConfig{Context: 4, Batch: 2}
	for want, test := range map[string]struct {
		sources []Weighted
		config  WindowsConfig
	}{
		"0 sources":                    {nil, good},
		"weight 0":                     {[]Weighted{{f, 1}, {f, 0}}, good},
		"weight NaN":                   {[]Weighted{{f, math.NaN()}}, good},
		"weight -1":                    {[]Weighted{{f, -1}}, good},
		"sum of the weights overflows": {[]Weighted{{f, math.MaxFloat64}, {f, math.MaxFloat64}}, good},
		"less than one window":         {[]Weighted{{f, 1}, {f, 1e-6}}, good},
		"tokens, want at least":        {[]Weighted{{f, 1}, {short, 1}}, good},
		"context 0":                    {[]Weighted{{f, 1}}, WindowsConfig{Batch: 2}},
	} {
		if _, err := NewMixture(test.sources, test.config); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
}

// TestShares checks that shares have the right sum, each within one of the exact share.
func TestShares(t *testing.T) {
	for _, weights := range [][]float64{{1}, {1, 1, 1}, {0.7, 0.2, 0.1}, {1e300, 2e300},
		{3, 5, 7, 11, 13}} {
		got, err := shares(weights, 65536)
		if err != nil {
			t.Fatal(err)
		}
		sum, total := int64(0), 0.0
		for _, w := range weights {
			total += w
		}
		for i, n := range got {
			sum += n
			if math.Abs(float64(n)-weights[i]/total*65536) >= 1 {
				t.Errorf("%v: %v", weights, got)
			}
		}
		if sum != 65536 {
			t.Errorf("%v: %v", weights, got)
		}
	}
}

// TestSharesByFraction checks that the remainder goes to the shares with the largest fractions, not
// to the largest shares.
func TestSharesByFraction(t *testing.T) {
	got, err := shares([]float64{0.54, 0.26, 0.2}, 10)
	if want := []int64{5, 3, 2}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
}
