package spec

import (
	"errors"
	"fmt"
	"math"
)

// NumberFormat is the encoding of numbers by codes.
type NumberFormat string

// The number formats.
const (
	// FormatInteger means that a code is itself the number.
	FormatInteger NumberFormat = "integer"
	// FormatE2M1 means that codes 0 to 15 are the bit patterns of the four-bit floats E2M1.
	FormatE2M1 NumberFormat = "e2m1"
	// FormatAffine means that a code is itself the number, and that each group has a minimum, which is
	// added to the number times the scale. The output scale then has two elements for each group, its
	// scale and its minimum.
	FormatAffine NumberFormat = "affine"
)

// e2m1 holds the numbers of E2M1, indexed by code (OCP Microscaling 1.0, section 5.3.3).
var e2m1 = [16]float32{0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6}

// Grid defines the numbers that the codes of a quantizer represent and the groups that share a
// scale, for every tensor that it quantizes with the same settings: Q(x), before any inverse
// rotation, is the number of its code times the scale of its group. On every grid the code may be
// 0 where Q(x) is 0. The zero Grid means that no grid is known.
type Grid struct {
	Format NumberFormat `json:"format"`
	// Min and Max are the least and the greatest integer code, and Step is the distance between
	// adjacent codes, which is 2 when codes are twice the half-integers. They are 0 for other formats.
	Min  int `json:"min,omitempty"`
	Max  int `json:"max,omitempty"`
	Step int `json:"step,omitempty"`
	// Group is the number of consecutive elements of a row that share a scale; the last group of a
	// row may be shorter. 0 means that a row or the whole tensor shares a scale.
	Group int `json:"group,omitempty"`
	// Span is the largest difference of two integer codes, 0 among them, that a group has, as with a
	// zero point that is subtracted from codes of 0 to Span; 0 if it may be Max−Min.
	Span int `json:"span,omitempty"`
}

// Number returns the number that a code represents.
func (g Grid) Number(code int32) float32 {
	if g.Format == FormatE2M1 {
		return e2m1[code&15]
	}
	return float32(code)
}

// Holds reports whether code is a code of the grid.
func (g Grid) Holds(code int32) bool {
	if g.Format == FormatE2M1 {
		return code >= 0 && int(code) < len(e2m1)
	}
	return int(code) >= g.Min && int(code) <= g.Max && (int(code)-g.Min)%g.Step == 0
}

// Codes lists all codes of the grid.
func (g Grid) Codes() (list []int32) {
	if g.Format == FormatE2M1 {
		g.Max, g.Step = len(e2m1)-1, 1
	}
	for code := g.Min; code <= g.Max; code += g.Step {
		list = append(list, int32(code))
	}
	return list
}

// PerGroup returns how many elements of the output scale a group has.
func (g Grid) PerGroup() int {
	if g.Format == FormatAffine {
		return 2
	}
	return 1
}

const maxCodes = 1 << 16

func (g Grid) check() error {
	integers := g.Min != 0 || g.Max != 0 || g.Step != 0
	switch {
	case g.Format == FormatE2M1 && integers:
		return errors.New("a grid of the format e2m1 has no Min, Max or Step: leave them 0")
	case g.Format == FormatE2M1:
	case g.Format != FormatInteger && g.Format != FormatAffine:
		return fmt.Errorf("got grid format %q, want %s, %s or %s",
			g.Format, FormatInteger, FormatE2M1, FormatAffine)
	case g.Step < 1 || g.Max < g.Min || (g.Max-g.Min)%g.Step != 0,
		(g.Max-g.Min)/g.Step >= maxCodes:
		return fmt.Errorf("the grid has codes from %d to %d in steps of %d: want a least and a greatest "+
			"code, and a step from 1 that divides their distance, with at most %d codes",
			g.Min, g.Max, g.Step, maxCodes)
	}
	if g.Span < 0 || g.Span > 0 && g.Format != FormatInteger {
		return fmt.Errorf("the grid of the format %s has a span of %d: want 0, or integers", g.Format,
			g.Span)
	}
	if g.Group < 0 || max(g.Group, g.Max, -g.Min, g.Span) > math.MaxInt32 {
		return fmt.Errorf("the grid has codes from %d to %d in groups of %d elements: want numbers of "+
			"32 bits, and groups of 0 or more", g.Min, g.Max, g.Group)
	}
	return nil
}
