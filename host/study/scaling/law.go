// Package scaling fits the precision scaling law
//
//	L(N, D, P) = A/(N·eff(P))^α + B/D^β + E
//
// (CAGE paper, "Precision Scaling Law"; after QuEST, Panferov et al. 2025, and Hoffmann et al.
// 2022) to final validation losses. N is the number of parameters outside the embeddings and D the
// number of training tokens. eff(P) is the parameter efficiency of a method at P bits: a quantized
// model is worth a model in full precision with N·eff(P) parameters. A, α, B, β and E are shared by
// all methods.
//
// The package reads points (from run directories or CSV), fits the law, warns about parameters that
// the points cannot determine, computes bootstrap intervals, and makes tables and figures.
// host/study/figure draws the figures; host/study trains the models.
package scaling

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
)

// Law holds the parameters that all methods share. Losses are in nats per token.
type Law struct {
	A     float64 `json:"a"`
	Alpha float64 `json:"alpha"`
	B     float64 `json:"b"`
	Beta  float64 `json:"beta"`
	E     float64 `json:"e"`
}

// Loss returns the loss that the law predicts for a model with n parameters and parameter
// efficiency eff after d tokens.
func (l Law) Loss(n, d, eff float64) float64 {
	return l.A/math.Pow(n*eff, l.Alpha) + l.B/math.Pow(d, l.Beta) + l.E
}

// Normalized returns the parameter efficiency per bit relative to 16 bits: eff·16/P. It is above 1
// if a byte of quantized weights is worth more than a byte of 16-bit weights.
func Normalized(eff, bits float64) float64 { return eff * 16 / bits }

// Bytes returns the size of n parameters with the given bits per parameter.
func Bytes(n, bits float64) float64 { return n * bits / 8 }

// Group is a set of points that have the same parameter efficiency: a method at a number of bits.
type Group struct {
	Method string  `json:"method"`
	Bits   float64 `json:"bits"`
}

// String returns the group's name for messages and legends.
func (g Group) String() string {
	if g.Bits == fullPrecision {
		return g.Method
	}
	return fmt.Sprintf("%s, %s", g.Method, bitsText(g.Bits))
}

func bitsText(bits float64) string {
	if bits == 1 {
		return "1 bit"
	}
	return significant(bits) + " bits" // such as log₂3
}

func number(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }

// fullPrecision is the number of bits at and above which a group counts as unquantized.
const fullPrecision = 16

// Point is a trained model, as a data point of the fit.
type Point struct {
	Group
	N      float64 `json:"n"`      // parameters outside the embeddings
	D      float64 `json:"d"`      // tokens seen
	Loss   float64 `json:"loss"`   // final validation loss in nats per token
	Source string  `json:"source"` // file and line, or run directory
}

// check returns what is wrong with a point; "" if it is valid.
func (p Point) check() string {
	switch {
	case p.Method == "":
		return "the method has no name"
	case !positive(p.N):
		return "n is " + number(p.N) + "; want the number of parameters outside the embeddings, above 0"
	case !positive(p.D):
		return "d is " + number(p.D) + "; want the number of tokens seen, above 0"
	case !positive(p.Bits) || p.Bits > maxBits:
		return fmt.Sprintf("bits is %s; want bits per weight, above 0 and at most %d",
			number(p.Bits), maxBits)
	case !positive(p.Loss):
		return "loss is " + number(p.Loss) + "; want the validation loss in nats per token, above 0"
	case p.N > largest || p.D > largest || p.Loss > largest || p.N < 1 || p.D < 1:
		return "n and d must be 1 or more, and nothing above " + number(largest)
	}
	return ""
}

const (
	maxBits = 64
	largest = 1e30
)

func positive(x float64) bool { return x > 0 && x <= 1e300 }

// groups returns the groups of the points, sorted by descending bits, then by first appearance.
func groups(points []Point) []Group {
	var all []Group
	for _, p := range points {
		if !slices.Contains(all, p.Group) {
			all = append(all, p.Group)
		}
	}
	slices.SortStableFunc(all, func(a, b Group) int { return cmp.Compare(b.Bits, a.Bits) })
	return all
}
