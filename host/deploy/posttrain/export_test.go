package posttrain

// Nearest rounds each element of w independently to its nearest level.
func (g *Grid) Nearest(w []float64) []float64 {
	values := make([]float64, len(w))
	for k, x := range w {
		values[k] = g.round(x, k/g.Columns, k%g.Columns)
	}
	return values
}
