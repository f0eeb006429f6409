package model

import (
	"errors"
	"fmt"
	"slices"
)

// Pairing says which features of a head make the points that rotary positions turn.
type Pairing string

// The pairings. Weights trained with one are those of the other after a permutation of rows.
const (
	Interleaved Pairing = "interleaved" // features 2i and 2i+1
	HalfSplit   Pairing = "half"        // features i and size/2 + i
)

// RopeScaling stretches the long wavelengths of rotary positions, so that a model whose training saw short sequences
// works on long ones, by the rule of Llama 3.1: wavelengths up to Original/High stay, those from Original/Low on become
// Factor times as long, and in between both frequencies are mixed.
type RopeScaling struct {
	Factor    float64
	Low, High float64
	Original  int // tokens of the sequences that the frequencies were made for
}

// shape is what a transformer's graph is made from, nothing left to fill in.
type shape struct {
	layers, heads, keyHeads, width, hidden, vocabulary int

	epsilon, theta, initStd float64
	pairing                 Pairing
	scaling                 *RopeScaling // nil: none
	tied                    bool         // the embedding is the head
	recompute               bool         // blocks are computed anew in the backward pass
}

// size is the number of features of a head.
func (s shape) size() int { return s.width / s.heads }

// projected is the number of rows of the fused weight of queries, keys and values.
func (s shape) projected() int { return (s.heads + 2*s.keyHeads) * s.size() }

// validate reports everything that is wrong with the shape.
func (s shape) validate() error {
	var errs []error
	for _, field := range []struct {
		name  string
		value int
	}{{"layers", s.layers}, {"heads", s.heads}, {"key-value heads", s.keyHeads}, {"width", s.width}, {"hidden", s.hidden}, {"vocabulary", s.vocabulary}} {
		if field.value < 1 {
			errs = append(errs, fmt.Errorf("%s is %d, must be at least 1", field.name, field.value))
		}
	}
	if s.heads > 0 && s.width > 0 {
		errs = append(errs, s.validateHeads())
	}
	if s.heads > 0 && s.keyHeads > 0 && s.heads%s.keyHeads != 0 {
		errs = append(errs, fmt.Errorf("%d key-value heads do not divide %d heads", s.keyHeads, s.heads))
	}
	if !(s.epsilon > 0 && s.epsilon < 1) {
		errs = append(errs, fmt.Errorf("norm epsilon is %g, must be between 0 and 1", s.epsilon))
	}
	if !(s.theta > 1 && s.theta <= 1e12) {
		errs = append(errs, fmt.Errorf("rope theta is %g, must be above 1 and at most 1e12", s.theta))
	}
	if s.pairing != Interleaved && s.pairing != HalfSplit {
		errs = append(errs, fmt.Errorf("rope pairs are %q, must be %q or %q", s.pairing, Interleaved, HalfSplit))
	}
	if !(s.initStd > 0 && s.initStd < 1e6) {
		errs = append(errs, fmt.Errorf("initial standard deviation is %g, must be positive", s.initStd))
	}
	return errors.Join(append(errs, s.scaling.validate())...)
}

func (s *RopeScaling) validate() error {
	if s == nil || s.Factor >= 1 && s.Factor <= 1e6 && s.Low > 0 && s.High > s.Low && s.High <= 1e6 && s.Original > 0 {
		return nil
	}
	return fmt.Errorf("rope scaling is %+v: the factor must be at least 1, 0 < low < high, and the original context positive", *s)
}

// validateHeads checks that heads have an even size, as the rotation of pairs needs, and names the nearest number of
// heads that would do.
func (s shape) validateHeads() error {
	if s.width%(2*s.heads) == 0 {
		return nil
	}
	var possible []int
	for heads := 1; 2*heads <= s.width; heads++ {
		if s.width%(2*heads) == 0 {
			possible = append(possible, heads)
		}
	}
	if len(possible) == 0 {
		return fmt.Errorf("width is %d, must be even", s.width)
	}
	distance := func(heads int) int { return max(heads-s.heads, s.heads-heads) }
	nearest := slices.MinFunc(possible, func(a, b int) int { return distance(a) - distance(b) })
	return fmt.Errorf("width %d does not split into %d heads of even size: the nearest number of heads that does is %d",
		s.width, s.heads, nearest)
}

// swiGLUHidden is the usual number of features inside a feed-forward layer with SwiGLU: 8/3 of the width, so that three
// matrices have as many elements as two of four times the width, times the multiplier, rounded up to a multiple of 256.
func swiGLUHidden(width int, multiplier float64) int {
	const multiple = 256
	hidden := int(multiplier * float64(8*width/3))
	return (hidden + multiple - 1) / multiple * multiple
}

// orDefault is value, or def where it is zero.
func orDefault[T comparable](value, def T) T {
	var zero T
	if value == zero {
		return def
	}
	return value
}

// preset is a named shape.
type preset[C any] struct {
	name   string
	config C
}

func presetNames[C any](list []preset[C]) []string {
	var names []string
	for _, p := range list {
		names = append(names, p.name)
	}
	return names
}

func findPreset[C any](list []preset[C], name string) (C, error) {
	for _, p := range list {
		if p.name == name {
			return p.config, nil
		}
	}
	var none C
	return none, fmt.Errorf("unknown model size %q: known are %s", name, joined(presetNames(list)))
}
