package matmul

import (
	"errors"
	"math"
)

// Panels multiply matrices that the caller packs once for several products, or panels that a
// product has written as an operand of another one: [Product] packs both operands again in each
// run.
//
// Panels consist of 32-bit words. A word holds one contracted element as float32, or where the
// processor multiplies pairs, two adjacent ones in bfloat16, the first in the lower half: see
// [Panels.Pairs]. A panel of a left operand has [Panels.Rows] of its rows, one of a right operand
// [Panels.Columns] of its columns. For each word index along the contracted dimension it holds the
// words of all its rows (or columns), one after the other. So a right panel is a row-major matrix
// of words. A tile of results can be the right panel of the next product as it is, or if words are
// pairs, after its rows are joined in pairs.
type Panels struct{ format *format }

// NewPanels returns the panels for [BFloat16] or [Float32]. For BFloat16, packing rounds the
// elements.
func NewPanels(t *Tier, a Arithmetic) (*Panels, error) {
	if t == nil || a != BFloat16 && a != Float32 {
		return nil, errors.New("panels need a tier, and an arithmetic of floats")
	}
	return &Panels{t.floats(a)}, nil
}

// Pairs reports whether a word holds two contracted elements.
func (p *Panels) Pairs() bool { return p.format.per == 2 }

// Words returns the number of words for the given number of contracted elements. The last of an odd
// number is paired with zero.
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

// Multiply multiplies the first words of some left panels, which begin apart elements from each
// other, by those of a right panel. It writes the tiles of results, one below the other, to out, in
// rows that are stride apart, or adds them to out.
func (m *Multiplier) Multiply(panels, words int, left []float32, apart int, right, out []float32,
	stride int, add bool) {
	if panels == 0 {
		return
	}
	s := &m.strip
	*s = strip{
		words: words, tiles: panels, steps: math.MaxInt32,
		left: asWords(left), apart: apart, right: asWords(right),
		sums: asWords(out), stride: stride, tile: m.tile[:],
	}
	if add {
		s.from, s.fromStride = s.sums, stride
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

// Left returns the Packing of a left operand, given its rows and its contracted elements.
func (p *Panels) Left(rows, contracted Axis) (*Packing, error) {
	return p.packing("left", p.format.rows, p.format.tiled, rows, contracted)
}

// Right returns the Packing of a right operand, given its columns and its contracted elements.
func (p *Panels) Right(columns, contracted Axis) (*Packing, error) {
	return p.packing("right", p.format.columns, false, columns, contracted)
}

func (p *Panels) packing(
	which string, height int, tiled bool, cross, contracted Axis,
) (*Packing, error) {
	v, err := newView(which, Layout{Cross: []Axis{cross}, Contracted: []Axis{contracted}})
	return &Packing{p.format, v, height, tiled}, err
}

// Size returns the number of words that [Packing.Pack] may write.
func (k *Packing) Size(rows, contracted int) int {
	return roundUp(rows, k.height)*k.format.words(contracted) + 7
}

// Pack packs some rows (of a right operand, columns) and some contracted elements of an operand.
// The last panel is padded with zero rows.
func (k *Packing) Pack(dst []float32, src Elements, row, rows, first, count int) {
	w := workspaces.Get().(*workspace)
	w.source = source{view: &k.view, row: row, rows: rows, first: first, count: count,
		height: k.height, tiled: k.tiled}
	k.format.pack(asWords(dst), src, &w.source, &w.stage)
	workspaces.Put(w)
}
