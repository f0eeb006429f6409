package program

import (
	"fmt"
	"slices"
)

// check fails if an attribute is given that op does not use, so that nodes that mean the
// same are equal. It also bounds the lengths of the lists of axes, so that later checks
// can go through them, whatever a plugin sent.
func (a *Attr) check(op Op) error {
	fields := []struct {
		name   string
		length int
		used   bool
	}{
		{"axes", len(a.Axes), usesAxes(op)},
		{"start", len(a.Start), op == OpSlice},
		{"limit", len(a.Limit), op == OpSlice},
		{"stride", len(a.Stride), op == OpSlice},
		{"lhs_contract", len(a.LhsContract), op == OpDot},
		{"rhs_contract", len(a.RhsContract), op == OpDot},
		{"lhs_batch", len(a.LhsBatch), op == OpDot},
		{"rhs_batch", len(a.RhsBatch), op == OpDot},
		{"block", a.Block, op == OpHadamard},
		{"floats", len(a.Floats), op == OpConstant},
		{"ints", len(a.Ints), op == OpConstant},
	}
	for _, f := range fields {
		if !f.used && f.length != 0 {
			return fmt.Errorf("takes no attribute %s", f.name)
		}
		if list := op != OpConstant && op != OpHadamard; list && f.length > MaxRank {
			return fmt.Errorf("attribute %s has %d entries: at most %d are possible", f.name, f.length, MaxRank)
		}
	}
	return nil
}

func usesAxes(op Op) bool {
	switch op {
	case OpIota, OpTranspose, OpBroadcast, OpConcatenate, OpReduceSum, OpReduceMax, OpReduceMin:
		return true
	}
	return false
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
