package export

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/cage-qat/cage/host/deploy/export/pack"
	"github.com/cage-qat/cage/host/model/gguf"
)

// ggufBlocks packs a grid.
func ggufBlocks(g *Grid, typ gguf.Type, inexact bool) ([]byte, error) {
	size, _ := typ.Block()
	g, err := ggufGrid(g, typ, inexact)
	if err != nil {
		return nil, err
	}
	var out []byte
	for i, s := range g.Scales {
		codes := g.Codes[i*size : (i+1)*size]
		switch typ {
		case gguf.Q8_0:
			out, err = pack.Q8_0(out, codes, s)
		case gguf.Q4_0:
			out, err = pack.Q4_0(out, codes, s)
		case gguf.Q4_1:
			out, err = halfIntegers(out, codes, s, inexact)
		case gguf.MXFP4:
			out, err = pack.MXFP4(out, codes, s)
		}
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// ggufGrid is a grid with the codes and groups of a type. If it may be inexact, scales are
// rounded to half floats.
func ggufGrid(g *Grid, typ gguf.Type, inexact bool) (*Grid, error) {
	size, _ := typ.Block()
	var err error
	if typ == gguf.MXFP4 {
		if g, err = floatBlocks(g, size); err != nil {
			return nil, err
		}
		return g, nil
	}
	if g, err = g.integers(); err != nil {
		return nil, err
	}
	if g, err = g.split(size); err != nil {
		return nil, err
	}
	if !inexact {
		return g, checkHalf(g.Scales)
	}
	rounded := *g
	rounded.Scales = slices.Clone(g.Scales)
	for i, s := range rounded.Scales {
		rounded.Scales[i] = roundedToHalf(s)
	}
	return &rounded, nil
}

// checkHalf refuses scales that are no half floats.
func checkHalf(scales []float32) error {
	for _, s := range scales {
		if _, ok := pack.ExactF16(s); !ok {
			return fmt.Errorf("its scales are not all half floats, as those of a quantizer with scale_dtype = \"f16\" are; --inexact rounds them")
		}
	}
	return nil
}

var errEven = errors.New("its codes are not all odd: Q4_1 is for grids of half-integers")

// halfIntegers packs odd codes from −15 to 15, which are twice the levels of a grid of
// half-integers, as Q4_1: step·(level + 7.5) − 7.5·step.
func halfIntegers(out []byte, codes []int32, scale float32, inexact bool) ([]byte, error) {
	shifted := make([]int32, len(codes))
	for i, c := range codes {
		if c&1 == 0 {
			return nil, errEven
		}
		shifted[i] = (c + 15) / 2
	}
	minimum := -15 * scale
	if rounded := roundedToHalf(minimum); rounded != minimum && !inexact {
		return nil, errors.New("7.5 times its step is not always a half float, as with 7 significant bits of the step: scale_dtype = \"f16\" of the quantizer makes such; --inexact rounds it")
	} else {
		minimum = rounded
	}
	return pack.Q4_1(out, shifted, 2*scale, minimum)
}

func roundedToHalf(v float32) float32 {
	bits := pack.F16(v)
	values, err := gguf.Decode(gguf.F16, []byte{byte(bits), byte(bits >> 8)})
	if err != nil {
		return float32(math.NaN()) // never: two bytes are one number
	}
	return values[0]
}
