package matmul

import (
	"errors"
	"math"
)

// Panels multiply matrices of which the caller packs each once for several products, or has panels
// written that are operands of other products: [Product] packs both operands again in each run.
//
// Panels consist of words of 32 bits. A word holds one contracted element as float32, or where the
// processor multiplies pairs, two neighbours in bfloat16, the first in the lower half: see
// [Panels.Pairs]. A panel of a left operand has [Panels.Rows] of its rows, one of a right operand
// [Panels.Columns] of its columns. For each word along the sums it holds those of all of them, one
// after the other. So a right panel is a matrix of words in row-major order. A tile of results can
// be the right panel of the next product as it is, or if words are pairs, after its rows are joined
// in twos.
type Panels struct{ format *format }

// NewPanels returns the panels for [BFloat16] or [Float32]. For BFloat16, elements are rounded
// where they are packed.
func NewPanels(t *Tier, a Arithmetic) (*Panels, error) {
	if t == nil || a != BFloat16 && a != Float32 {
		return nil, errors.New("panels need a tier, and an arithmetic of floats")
	}
	return &Panels{t.floats(a)}, nil
}

// Pairs reports whether a word holds two contracted elements.
func (p *Panels) Pairs() bool { return p.format.per == 2 }

// Words is the number of words that so many contracted elements take. Of an odd number the last has
// zero as its neighbour.
func (p *Panels) Words(elements int) int { return p.format.words(elements) }

// Rows is the number of rows of a left panel.
func (p *Panels) Rows() int { return p.format.rows }

// Columns is the number of columns of a right panel.
func (p *Panels) Columns() int { return p.format.columns }

// A Multiplier multiplies panels, for one goroutine.
type Multiplier struct {
	format *format
	strip  strip
	tile   [tileSize]uint32
}

// Multiplier makes one.
func (p *Panels) Multiplier() *Multiplier { return &Multiplier{format: p.format} }

// Multiply multiplies the first words along the sums of some left panels, which begin apart
// elements from each other, by those of a right panel. It writes the tiles of results, one below
// the other, to out, in rows that are stride apart, or adds them to what is there.
func (m *Multiplier) Multiply(panels, words int, left []float32, apart int, right, out []float32, stride int, add bool) {
	if panels == 0 {
		return
	}
	s := &m.strip
	*s = strip{
		words: words, tiles: panels, steps: math.MaxInt32, left: asWords(left), apart: apart, right: asWords(right),
		sums: asWords(out), stride: stride, tile: m.tile[:],
	}
	if add {
		s.from, s.fromStride = s.sums, stride
	}
	m.format.multiply(m.format, s)
}

// A Packing brings parts of an operand into panels.
type Packing struct {
	format *format
	view   view
	height int
	tiled  bool
}

// Left describes a left operand: its rows and its contracted elements.
func (p *Panels) Left(rows, contracted Axis) (*Packing, error) {
	return p.packing("left", p.format.rows, p.format.tiled, rows, contracted)
}

// Right describes a right operand: its columns and its contracted elements.
func (p *Panels) Right(columns, contracted Axis) (*Packing, error) {
	return p.packing("right", p.format.columns, false, columns, contracted)
}

func (p *Panels) packing(which string, height int, tiled bool, cross, contracted Axis) (*Packing, error) {
	v, err := newView(which, Layout{Cross: []Axis{cross}, Contracted: []Axis{contracted}})
	return &Packing{p.format, v, height, tiled}, err
}

// Size is the number of words that [Packing.Pack] may write.
func (k *Packing) Size(rows, contracted int) int {
	return roundUp(rows, k.height)*k.format.words(contracted) + 7
}

// Pack packs some rows of an operand, of a right one some columns, and some of its contracted
// elements. Rows that the last panel lacks are zero.
func (k *Packing) Pack(dst []float32, src Elements, row, rows, first, count int) {
	w := workspaces.Get().(*workspace)
	w.source = source{view: &k.view, row: row, rows: rows, first: first, count: count, height: k.height, tiled: k.tiled}
	k.format.pack(asWords(dst), src, &w.source, &w.stage)
	workspaces.Put(w)
}
