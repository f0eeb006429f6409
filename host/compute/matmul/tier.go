package matmul

import (
	"fmt"
	"os"
	"strings"
	"unsafe"
)

// A Tier is a set of kernels for a processor's instructions.
type Tier struct {
	name     string
	bfloat16 *format
	float32  *format // uses unrounded operands
	codes    *format // for 8-bit integers
}

// Name returns the name by which [Named] and the environment variable CAGE_CPU refer to the tier.
func (t *Tier) Name() string { return t.name }

// IsPortable reports whether the tier is plain Go, without vector instructions.
func (t *Tier) IsPortable() bool { return t == portable }

// Tiers lists the tiers of this processor, the fastest first. The last one is always "portable",
// which is plain Go.
func Tiers() []*Tier { return append(processorTiers(), portable) }

// Named returns the tier with the given name, or an error if this processor does not have it.
func Named(name string) (*Tier, error) {
	var names []string
	for _, t := range Tiers() {
		if t.name == name {
			return t, nil
		}
		names = append(names, t.name)
	}
	list := strings.Join(names, ", ")
	return nil, fmt.Errorf("this processor does not support kernels %q: use one of %s", name, list)
}

// Best returns the fastest tier of this processor, or the one named by the environment variable
// CAGE_CPU, with which tests emulate older processors.
func Best() (*Tier, error) {
	name := os.Getenv("CAGE_CPU")
	if name == "" {
		return Tiers()[0], nil
	}
	t, err := Named(name)
	if err != nil {
		return nil, fmt.Errorf("CAGE_CPU: %w", err)
	}
	return t, nil
}

// A format is a kernel, together with the functions that pack operands into its panels.
type format struct {
	integers bool
	rows     int // of a panel of the left operand, and of a tile
	columns  int // of a panel of the right operand, and of a tile
	per      int // elements in a word
	// tiled means that in a left panel [tileWords] words of a row are adjacent, and that panels of
	// both operands consist of whole tiles of words. Otherwise, words of all rows with the same
	// index are adjacent.
	tiled bool
	// unsigned means that left elements are stored with an [offset] that makes them unsigned bytes.
	// The offset times the sums of the right columns is subtracted from the results.
	unsigned  bool
	cut       *blocking
	multiply  func(f *format, s *strip)
	float32s  packer[float32]
	bfloat16s packer[uint16]
	int8s     packer[int8]
	*helpers
}

// packing returns a format that differs in how it packs float32 operands.
func (f format) packing(float32s packer[float32]) *format {
	f.float32s = float32s
	return &f
}

// offset is what makes 8-bit integers unsigned.
const offset = 128

// helpers are functions that several formats use.
type helpers struct {
	// transpose writes element (row, word) of src, whose rows are ld apart, to
	// dst[word*stride+row], for stride rows. It may also overwrite the seven words after them.
	transpose func(dst []uint32, stride int, src []uint32, ld, words int)
	// shift adds the [offset] to every byte, and addColumns sums the bytes of each column of a panel.
	// Only unsigned formats need them.
	shift      func(words []uint32)
	addColumns func(sums []int32, panel []uint32)
	finish     func(f *finish)
	narrow     narrowFunc
	// prefetch prefetches the given number of bytes of each row.
	prefetch func(at unsafe.Pointer, stride, rows, bytes int)
}

type packer[T any] struct {
	// along packs adjacent elements into words; the last word is padded with zeros.
	along func(dst []uint32, src []T)
	// across packs elements with the same index in several slices into a word.
	across func(dst []uint32, src *[4][]T)
	// The straight functions read operands in memory, in rows that are ld apart, and write panels.
	// straightAlong writes whole blocks of eight words of one panel. straightAcross writes a number
	// of columns, whose panels are panel words apart. They may be nil.
	straightAlong  packAlongFunc[T]
	straightAcross packAcrossFunc[T]
	// tiledAlong and tiledAcross do the same for tiled panels, in blocks of [tileWords] words.
	tiledAlong  packAlongFunc[T]
	tiledAcross packAcrossFunc[T]
	// exact means that straight functions read only what a panel needs, and that the last panel of
	// straightAcross may be partial. Otherwise they read whole vectors of eight, and straightAcross
	// also writes them.
	exact bool
}

type (
	packAlongFunc[T any]  func(dst []uint32, height int, src []T, ld, words int)
	packAcrossFunc[T any] func(dst []uint32, panel, height, columns int, src []T, ld, words int)
	// A narrowFunc rounds a tile to bfloat16.
	narrowFunc func(dst []uint16, stride int, src []uint32, srcStride, rows, columns int)
)

// HasBFloat16 reports whether the tier uses an instruction for bfloat16 products. Other tiers round
// operands to bfloat16, multiply in float32, and give the same bits as each other.
func (t *Tier) HasBFloat16() bool { return t.bfloat16.per == 2 }

func (t *Tier) format(a Arithmetic) *format {
	switch a {
	case Int8:
		return t.codes
	case Float32:
		return t.float32
	}
	return t.bfloat16
}
