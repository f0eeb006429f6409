package triton

import (
	"cmp"
	"math"
	"slices"

	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/transform"
)

// largestTable is the largest size of a constant table that is replaced by selections.
const largestTable = 64

// withoutTables returns p, which must be valid, with comparisons instead of searches in small
// tables of constants, and selections instead of lookups: the elements of a tile cannot be indexed.
func withoutTables(p *program.Program) (*program.Program, error) {
	if !slices.ContainsFunc(p.Nodes, func(n program.Node) bool { return smallTable(p, &n) != nil }) {
		return p, nil
	}
	b := program.NewBuilder(p.Name)
	var inputs []program.Value
	for _, in := range p.Inputs {
		inputs = append(inputs, b.Input(in.Name, in.Type))
	}
	values := transform.Interpret(p, inputs, func(_ program.ID, n *program.Node, args []program.Value) program.Value {
		table := smallTable(p, n)
		switch {
		case table == nil:
			return b.Apply(n.Op, n.Attr, n.Type, args...)
		case n.Op == program.OpNearest:
			return nearestOf(b, args[0], table)
		}
		v := b.Const(table[0])
		for i := 1; i < len(table); i++ {
			v = args[0].Ge(b.ConstInt(int32(i))).Select(b.Const(table[i]), v)
		}
		return v
	})
	for _, o := range p.Outputs {
		b.Output(o.Name, values[o.Value])
	}
	return b.Build()
}

// smallTable returns the constant table, of 2 to largestTable finite numbers, that a node searches
// or looks up; nil for all other nodes.
func smallTable(p *program.Program, n *program.Node) []float64 {
	if n.Op != program.OpNearest && n.Op != program.OpLookup {
		return nil
	}
	i := int(n.Args[1]) - len(p.Inputs)
	if i < 0 || p.Nodes[i].Op != program.OpConstant {
		return nil
	}
	c := p.Nodes[i]
	size := len(c.Attr.Floats)
	if len(c.Type.Shape) != 1 || size != c.Type.Shape[0] || size < 2 || size > largestTable ||
		slices.ContainsFunc(c.Attr.Floats, func(v float64) bool { return math.IsNaN(v - v) }) {
		return nil
	}
	return c.Attr.Floats
}

// nearestOf returns the index of the number of a table nearest to x, by comparisons with the
// midpoints of the sorted table. Ties, and equal numbers, go to the lower index.
func nearestOf(b *program.Builder, x program.Value, table []float64) program.Value {
	order := make([]int, len(table))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(table[i], table[j]) })
	order = slices.CompactFunc(order, func(i, j int) bool { return table[i] == table[j] })
	index := b.ConstInt(int32(order[0]))
	for k, i := range order[1:] {
		before := order[k]
		middle := b.Const(table[before]/2 + table[i]/2)
		passed := x.Gt(middle)
		if i < before {
			passed = x.Ge(middle)
		}
		index = passed.Select(b.ConstInt(int32(i)), index)
	}
	return x.IsFinite().Select(index, b.ConstInt(0))
}
