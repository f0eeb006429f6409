package program

import (
	"fmt"
	"slices"
)

// attributes are the fields of [Attr] that an operation uses.
type attributes uint8

const (
	usesAxes     attributes = 1 << iota
	usesRange               // start, limit and stride
	usesPairs               // the axes of dot
	usesBlock               // of hadamard
	usesElements            // of a constant
)

// check fails if an attribute is given that the operation does not use, so that nodes that mean the
// same are equal. It also bounds the lengths of the lists of axes, so that later checks
// can go through them, whatever a plugin sent.
func (a *Attr) check(uses attributes) error {
	fields := []struct {
		name   string
		length int
		use    attributes
	}{
		{"axes", len(a.Axes), usesAxes},
		{"start", len(a.Start), usesRange},
		{"limit", len(a.Limit), usesRange},
		{"stride", len(a.Stride), usesRange},
		{"lhs_contract", len(a.LhsContract), usesPairs},
		{"rhs_contract", len(a.RhsContract), usesPairs},
		{"lhs_batch", len(a.LhsBatch), usesPairs},
		{"rhs_batch", len(a.RhsBatch), usesPairs},
		{"block", a.Block, usesBlock},
		{"floats", len(a.Floats), usesElements},
		{"ints", len(a.Ints), usesElements},
	}
	for _, f := range fields {
		if uses&f.use == 0 && f.length != 0 {
			return fmt.Errorf("takes no attribute %s", f.name)
		}
		if axes := f.use&(usesAxes|usesRange|usesPairs) != 0; axes && f.length > MaxRank {
			return fmt.Errorf("attribute %s has %d entries: at most %d are possible", f.name, f.length, MaxRank)
		}
	}
	return nil
}

// clone copies the lists of axes, which callers may change afterwards. The elements of
// constants, which may be many, are copied where they come in.
func (a Attr) clone() Attr {
	for _, list := range []*[]int{
		&a.Axes, &a.Start, &a.Limit, &a.Stride,
		&a.LhsContract, &a.RhsContract, &a.LhsBatch, &a.RhsBatch,
	} {
		*list = slices.Clone(*list)
	}
	return a
}
