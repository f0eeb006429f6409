package reference

import (
	"cmp"
	"math"
	"slices"

	"github.com/cage-qat/cage/sdk/program"
)

// rowsOf divides data into rows as long as those of a table: single elements, or vectors along the
// last axis.
func rowsOf(data []float64, table program.Type) (count int, row func(i int) []float64) {
	d := 1
	if table.Rank() == 2 {
		d = table.Shape[1]
	}
	return len(data) / d, func(i int) []float64 { return data[i*d : (i+1)*d] }
}

func nearest(n *program.Node, args []Tensor) Tensor {
	table := args[1].Type
	count, x := rowsOf(args[0].Floats, table)
	entries, entry := rowsOf(args[1].Floats, table)
	out := zeros(n.Type)
	for i := range count {
		least := math.Inf(1)
		for j := range entries {
			// NaN and infinite distances are never less than least.
			if d := squaredDistance(x(i), entry(j)); d < least {
				least, out.Ints[i] = d, int64(j)
			}
		}
	}
	return out
}

func squaredDistance(x, y []float64) (sum float64) {
	for i := range x {
		sum += (x[i] - y[i]) * (x[i] - y[i])
	}
	return sum
}

func within(index int64, n int) int { return int(min(max(index, 0), int64(n-1))) }

func lookup(n *program.Node, args []Tensor) Tensor {
	entries, entry := rowsOf(args[1].Floats, args[1].Type)
	out := Tensor{Type: n.Type}
	for _, index := range args[0].Ints {
		out.Floats = append(out.Floats, entry(within(index, entries))...)
	}
	return out
}

func scatterAdd(n *program.Node, args []Tensor) Tensor {
	out := zeros(n.Type)
	entries, entry := rowsOf(out.Floats, n.Type)
	_, x := rowsOf(args[1].Floats, n.Type)
	for i, index := range args[0].Ints {
		sum := entry(within(index, entries))
		for j, v := range x(i) {
			sum[j] += v
		}
	}
	return out
}

// topK marks the first k elements of each row in descending order, NaN before all numbers. The sort
// is stable, so equal elements keep their order.
func topK(n *program.Node, args []Tensor) Tensor {
	x := args[0]
	d := x.Type.Shape[x.Type.Rank()-1]
	k := int(min(max(args[1].Ints[0], 0), int64(d)))
	out := zeros(n.Type)
	for from := 0; from < x.Len(); from += d {
		order := make([]int, d)
		for i := range order {
			order[i] = from + i
		}
		slices.SortStableFunc(order, func(i, j int) int {
			return cmp.Compare(-x.Floats[i], -x.Floats[j]) // NaN is less than any number
		})
		for _, i := range order[:k] {
			out.Ints[i] = 1
		}
	}
	return out
}

func orderStatistic(n *program.Node, args []Tensor) Tensor {
	x := args[0]
	d := x.Type.Shape[x.Type.Rank()-1]
	out := zeros(n.Type)
	for i := range out.Floats {
		row := slices.Clone(x.Floats[i*d : (i+1)*d])
		slices.Sort(row) // NaN comes first
		if out.Floats[i] = row[within(args[1].Ints[0], d)]; math.IsNaN(row[0]) {
			out.Floats[i] = row[0]
		}
	}
	return out
}
