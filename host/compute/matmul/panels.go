package matmul

import "errors"

// Panels multiplies matrices that the caller packs once for several products, or panels that are
// the result of another product. In contrast, [Product] packs both operands again in each run.
//
// Panels consist of 32-bit words. A word holds one contracted element as float32 or, if the
// processor multiplies pairs ([Panels.Pairs]), two adjacent ones in bfloat16, the first in the
// lower half. A left panel holds [Panels.Rows] rows of the operand, a right panel [Panels.Columns]
// columns. For each word index along the contracted dimension, the words of all rows (or columns)
// are adjacent. So a right panel is a row-major matrix of words. A tile of results can be the right
// panel of the next product, after its rows have been joined in pairs if words are pairs.
type Panels struct{ format *format }

// NewPanels returns the Panels for [BFloat16] or [Float32]. For BFloat16, packing rounds the
// elements.
func NewPanels(t *Tier, a Arithmetic) (*Panels, error) {
	if t == nil || a != BFloat16 && a != Float32 {
		return nil, errors.New("packed panels need a tier and floating-point arithmetic")
	}
	return &Panels{t.format(a)}, nil
}

// Pairs reports whether a word holds two contracted elements.
func (p *Panels) Pairs() bool { return p.format.per == 2 }

// Words returns the number of words for the given number of contracted elements. If words are pairs
// and the number is odd, the last element is paired with zero.
func (p *Panels) Words(elements int) int { return p.format.words(elements) }

// Rows returns the number of rows of a left panel.
func (p *Panels) Rows() int { return p.format.rows }

// Columns returns the number of columns of a right panel.
func (p *Panels) Columns() int { return p.format.columns }

// A Multiplier multiplies panels. It must be used by one goroutine at a time.
type Multiplier struct {
	format *format
	strip  strip
	tile   [tileSize]uint32
}

// Multiplier returns a new Multiplier.
func (p *Panels) Multiplier() *Multiplier { return &Multiplier{format: p.format} }

// Multiply multiplies left panels, which begin apart elements from each other, by a right panel,
// over the given number of words. It writes the tiles of results to out, one below the other, in
// rows that are stride elements apart. If add is set, it adds them to out.
func (m *Multiplier) Multiply(panels, words int, left []float32, apart int, right, out []float32,
	stride int, add bool) {
	if panels == 0 {
		return
	}
	s := &m.strip
	*s = strip{
		words: words, tiles: panels, left: asWords(left), apart: apart, right: asWords(right),
		sums: asWords(out), stride: stride, tile: m.tile[:],
	}
	if add {
		s.from, s.fromStride, s.overwrites = s.sums, stride, true
	}
	m.format.multiply(m.format, s)
}

// A Packing packs parts of an operand into panels.
type Packing struct {
	format *format
	view   view
	height int
	tiled  bool
}

// Left returns the Packing of a left operand with the given rows and contracted elements.
func (p *Panels) Left(rows, contracted Axis) (*Packing, error) {
	return p.packing("left", p.format.rows, p.format.tiled, rows, contracted)
}

// Right returns the Packing of a right operand with the given columns and contracted elements.
func (p *Panels) Right(columns, contracted Axis) (*Packing, error) {
	return p.packing("right", p.format.columns, false, columns, contracted)
}

func (p *Panels) packing(
	which string, height int, tiled bool, cross, contracted Axis,
) (*Packing, error) {
	v, err := newView(which, Layout{Cross: []Axis{cross}, Contracted: []Axis{contracted}})
	return &Packing{p.format, v, height, tiled}, err
}

// Size returns the maximum number of words that [Packing.Pack] writes.
func (k *Packing) Size(rows, contracted int) int {
	return roundUp(rows, k.height)*k.format.words(contracted) + 7
}

// Pack packs a range of rows (columns for a right operand) and a range of contracted elements of an
// operand. The last panel is padded with zero rows.
func (k *Packing) Pack(dst []float32, src Elements, row, rows, first, count int) {
	w := workspaces.Get().(*workspace)
	w.source = source{view: &k.view, row: row, rows: rows, first: first, count: count,
		height: k.height, tiled: k.tiled}
	k.format.pack(asWords(dst), src, &w.source, &w.stage)
	workspaces.Put(w)
}
